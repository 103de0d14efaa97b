// Drives an ACP agent with the npm package `@agentclientprotocol/sdk`: the counterpart of acp_python.py.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const given = JSON.parse(process.argv[2]);
const { client, methods, ndJsonStream } = await import(
  pathToFileURL(`${given.library}/@agentclientprotocol/sdk/dist/v1/stable/acp.js`).href
);

const tell = (kind, what = {}) => console.log(JSON.stringify({ kind, ...what }));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const told = async (word) => {
  if (!(given.cut_in ?? []).includes(word)) return;
  tell("waits", { where: word });
  await lines.next();
};

const [command, ...words] = given.command;
const process_ = spawn(command, words, { cwd: given.cwd, stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => process_.once("exit", resolve));
const stream = ndJsonStream(Writable.toWeb(process_.stdin), Readable.toWeb(process_.stdout));

const editor = client({ name: "acp_npm" })
  .onNotification(methods.client.session.update, ({ params }) => tell("update", { body: params.update }))
  .onRequest(methods.client.session.requestPermission, async ({ params }) => {
    tell("asked", { call: params.toolCall, options: params.options });
    await told("question");
    const chosen = params.options.find((each) => each.kind === (given.answer ?? "allow_once"));
    return { outcome: { outcome: "selected", optionId: chosen.optionId } };
  });

await editor.connectWith(stream, async (agent) => {
  const about = await agent.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
  tell("agent", { body: about });
  if (given.gateway) {
    const gateway = { baseUrl: given.gateway, headers: {} };
    await agent.request(methods.agent.authenticate, { methodId: "gateway", _meta: { gateway } });
  }
  const place = { cwd: given.cwd, mcpServers: [] };
  const begun = given.load
    ? await agent.request(methods.agent.session.load, { ...place, sessionId: given.load })
    : await agent.request(methods.agent.session.new, place);
  const sessionId = given.load ?? begun.sessionId;
  tell("session", { id: sessionId, body: begun });
  for (const text of given.prompts) {
    try {
      const answer = await agent.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
      tell("stop", { reason: answer.stopReason });
    } catch (error) {
      tell("error", { code: error.code, text: error.message });
    }
  }
  await told("end");
});
process_.stdin.end();
await ended;
tell("end");
process.exit(0);
