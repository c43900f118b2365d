// Whether the server is there: said in one line, and noticed while nobody asks for anything.

import { find } from "./dom.js";
import { hooks } from "./api.js";
import { change, state, subscribe } from "./state.js";
import { say } from "./words.js";

const SECONDS = 4;

export function startConnection() {
  subscribe(show);
  setInterval(look, 1000 * SECONDS);
}

function show() {
  const line = find("connection");
  const { kind } = state.connection;
  line.hidden = kind === "ok";
  line.dataset.kind = kind;
  line.textContent = kind === "ok" ? "" : say(kind);
}

async function look() {
  if (document.hidden) return;
  try {
    const response = await fetch("readyz", { cache: "no-store" });
    // While someone waits for an answer, that answer says when all is well again.
    if (response.ok && state.connection.kind === "gone") {
      change({ connection: { kind: "ok" } });
      hooks.back();
    } else if (!response.ok && state.connection.kind === "ok") change({ connection: { kind: "loading" } });
    else if (response.ok && state.connection.kind === "loading") change({ connection: { kind: "ok" } });
  } catch {
    change({ connection: { kind: "gone" } });
  }
}
