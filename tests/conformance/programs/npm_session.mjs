// Drives ccb with the official npm SDK, as its users do: the counterpart of python_session.py.
import { pathToFileURL } from "node:url";
import { createInterface } from "node:readline";

const given = JSON.parse(process.argv[2]);
const load = (name) => import(pathToFileURL(`${given.library}/${name}`).href);
const { query, tool, createSdkMcpServer } = await load("@anthropic-ai/claude-agent-sdk/sdk.mjs");
const { z } = await load("zod/index.js");

const tell = (kind, what = {}) => console.log(JSON.stringify({ kind, ...what }));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const told = async (word) => {
  if (!(given.cut_in ?? []).includes(word)) return;
  tell("waits", { where: word });
  await lines.next();
};

const add = tool("add", "Add two numbers", { a: z.number(), b: z.number() }, async (numbers) => {
  tell("tool", { name: "add", given: numbers });
  await told("tool");
  return { content: [{ type: "text", text: `the sum is ${numbers.a + numbers.b}` }] };
});

const hook = async (event, id) => {
  tell("hook", { event: event.hook_event_name, tool: event.tool_name, id });
  await told("hook");
  return {};
};

let answered = () => {};
let now = "";
async function* prompts() {
  for (const text of given.prompts) {
    now = text;
    const result = new Promise((resolve) => (answered = resolve));
    yield { type: "user", message: { role: "user", content: text }, parent_tool_use_id: null, session_id: "" };
    await result;
  }
}

const session = query({
  prompt: prompts(),
  options: {
    pathToClaudeCodeExecutable: given.cli,
    cwd: given.cwd,
    model: "haiku",
    env: { ...process.env, ...(given.env ?? {}) },
    mcpServers: { calc: { ...createSdkMcpServer({ name: "calc", version: "1.2.3", tools: [add] }), ...(given.server ?? {}) } },
    allowedTools: ["mcp__calc__add"],
    canUseTool: async (name, input) => {
      tell("asked", { name, input });
      await told("question");
      return { behavior: "allow", updatedInput: input };
    },
    onElicitation: async (form) => {
      tell("form", { server: form.serverName, message: form.message });
      return { action: "accept", content: {} };
    },
    hooks: { PreToolUse: [{ matcher: "Bash", hooks: [hook] }] },
    agents: { reviewer: { description: "Reviews code", prompt: "You review.", tools: ["Read"] } },
    systemPrompt: { type: "preset", preset: "claude_code", append: "APPENDED" },
    settingSources: [],
    includePartialMessages: true,
    extraArgs: { "a-flag-of-the-future": "x" },
    stderr: (line) => tell("stderr", { line }),
    ...(given.more ?? {}),
  },
});

const models = session.supportedModels();
const asked = given.controls
  ? Promise.all([session.getSettings(), session.listPermissionRules(), session.usage_EXPERIMENTAL_MAY_CHANGE_DO_NOT_RELY_ON_THIS_API_YET(), session.renameSession("another name"),
      session.getHooksListing(), session.reloadSkills(), session.reloadPlugins(),
      session.setCwd("/tmp").then(() => "changed", (error) => error.message)])
  : null;
asked?.then(([settings, rules, usage, _, hooks, skills, plugins, moved]) => tell("asked_for", { settings, rules, usage, hooks, skills, plugins, moved }), (error) => tell("error", { text: error.message }));
const status = given.controls ? models.then(() => session.mcpServerStatus()) : null;
models.then((found) => tell("info", { models: found.length }));
status?.then((servers) => tell("mcp", { status: servers }));
try {
  for await (const message of session) {
    tell("message", { type: message.type, body: message });
    if (message.type === "result") answered();
    if (now === given.long && message.event?.type === "content_block_delta") {
      now = ""; // once
      await told("stream");
      await session.interrupt();
    }
  }
} catch (error) {
  tell("error", { name: error.name, text: error.message });
}
await models;
await status;
await asked;
tell("end");
process.exit(0);
