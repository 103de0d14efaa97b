"use strict";
// The page around textual.js, which holds xterm.js and makes the terminal: the key of this browser, the bar of keys,
// touch, and what happens when the socket closes.

const KEYS = { escape: "\x1b", tab: "\t", up: "\x1b[A", down: "\x1b[B", y: "y", n: "n", enter: "\r" };
const CLOSED = {
  4000: ["ccb has ended.", "Start again"],
  4001: ["This screen is open in another window.", "Take it back"],
};
const RETRY_MS = 2000, AWAY_MS = 60000, SCROLL_PX = 24;
const terminal = document.getElementById("terminal");
const notice = document.getElementById("notice");
let socket = null, held = "", hiddenAt = 0;

// textual.js keeps its socket to itself.
window.WebSocket = class extends WebSocket {
  constructor(...where) {
    super(...where);
    socket = this;
    this.addEventListener("open", () => document.querySelector(".xterm-helper-textarea").focus());
    this.addEventListener("close", (event) => closed(event.code));
  }

  send(message) {
    super.send(held ? withHeld(message) : message);
  }
};

// A program on the terminal may put text into the clipboard (OSC 52), but not read what is there.
if (navigator.clipboard) navigator.clipboard.readText = async () => "";

async function hasKey(token) {
  const answer = await fetch("/key", { method: "POST", body: token });
  return answer.ok;
}

async function start() {
  const token = location.hash.slice(1);
  history.replaceState(null, "", "/");
  if (!(token && (await hasKey(token))) && !(await hasKey(""))) {
    const why = token ? "This link has been used, or a newer one was made." : "This browser has no key.";
    return say(`${why} Press Enter in the terminal of ccb serve for a link.`);
  }
  terminal.dataset.sessionWebsocketUrl = location.origin.replace(/^http/, "ws") + "/socket";
  terminal.dataset.fontSize = matchMedia("(max-width: 700px)").matches ? 13 : 15;
  const script = document.createElement("script");
  script.src = "/textual.js";
  script.onload = () => window.onload();
  document.head.append(script);
}

function say(text, button, action) {
  const [span, press] = notice.children;
  span.textContent = text;
  press.textContent = button || "";
  press.hidden = !button;
  press.onclick = action;
  notice.hidden = false;
}

function closed(code) {
  if (CLOSED[code]) return say(...CLOSED[code], () => location.reload());
  say("The connection to ccb serve is lost. Trying again …");
  setTimeout(again, RETRY_MS);
}

async function again() {
  try {
    if (await hasKey("")) location.reload();
    else say("ccb serve was started anew: open the link that it shows now.");
  } catch {
    setTimeout(again, RETRY_MS);
  }
}

function withHeld(message) {
  const [kind, text] = JSON.parse(message);
  if (kind !== "stdin" || !/^[ -~]$/.test(text)) return message;
  const changed = held === "alt" ? "\x1b" + text : String.fromCharCode(text.toUpperCase().charCodeAt(0) & 31);
  hold("");
  return JSON.stringify([kind, changed]);
}

function hold(key) {
  held = key;
  for (const each of document.querySelectorAll("[aria-pressed]")) {
    each.setAttribute("aria-pressed", each.dataset.key === key);
  }
}

for (const button of document.querySelectorAll("#keys button")) {
  button.addEventListener("pointerdown", (event) => event.preventDefault()); // the keyboard stays as it is
  button.addEventListener("click", () => {
    const key = button.dataset.key;
    if (!KEYS[key]) hold(held === key ? "" : key);
    else if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(["stdin", KEYS[key]]));
  });
}

// xterm.js knows wheels only: a finger that moves turns one.
let touchedAt = 0;
terminal.addEventListener("touchstart", (event) => (touchedAt = event.touches[0].clientY), { passive: true });
terminal.addEventListener("touchmove", (event) => {
  const { clientX, clientY, target } = event.touches[0];
  const lines = Math.trunc((touchedAt - clientY) / SCROLL_PX);
  touchedAt -= lines * SCROLL_PX;
  for (let line = 0; line < Math.abs(lines); line++) {
    const turn = { deltaY: Math.sign(lines), deltaMode: 1, clientX, clientY, bubbles: true, cancelable: true };
    target.dispatchEvent(new WheelEvent("wheel", turn));
  }
}, { passive: true });

// The keyboard of a phone covers the page without resizing it in some browsers.
window.visualViewport?.addEventListener("resize", () => {
  document.body.style.height = `${visualViewport.height}px`;
  scrollTo(0, 0);
  window.onresize?.();
});

// A phone that slept may hold a socket whose other end is gone.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) hiddenAt = Date.now();
  else if (hiddenAt && Date.now() - hiddenAt > AWAY_MS && notice.hidden) again(); // a notice has its own way on
});

addEventListener("load", start); // textual.js waits for that event, too: it must come after it
