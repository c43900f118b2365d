// Asking the server: patient when it is busy or gone, and only as long as the answer is still wanted.

import { change, state } from "./state.js";

const KEY = "vitrail-token";
const LONGEST_PAUSE = 5;

// Filled in by main.js: who asks for a token, and who is told that another model answers or that the server is back.
export const hooks = { token: async () => null, generation: () => {}, back: () => {} };

export class Failed extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export async function askJson(path, body, signal) {
  const answer = await (await ask(path, body, signal)).json();
  if (answer.generation !== undefined) hooks.generation(answer.generation);
  return answer;
}

// An array of float32 with its shape.
export async function askNumbers(path, body, signal) {
  const response = await ask(path, body, signal);
  const shape = response.headers.get("X-Shape").split(",").map(Number);
  return { shape, values: new Float32Array(await response.arrayBuffer()) };
}

async function ask(path, body, signal) {
  for (let tries = 0; ; tries += 1) {
    const response = await once(path, body, signal);
    if (response?.ok) {
      const { kind } = state.connection;
      if (kind !== "ok") change({ connection: { kind: "ok" } });
      if (kind === "gone") hooks.back();
      return response;
    }
    if (!response) {
      change({ connection: { kind: "gone" } });
      await backAgain(signal);
    } else if (response.status === 503) {
      const said = await problem(response);
      const pause = Math.min(LONGEST_PAUSE, Math.max(0.2, Number(response.headers.get("Retry-After")) || 0.5));
      change({ connection: { kind: said.code === "loading" ? "loading" : "busy", seconds: pause } });
      // Not all who were refused come back at the same moment.
      await sleep(pause * (0.8 + 0.4 * Math.random()), signal);
    } else if (response.status === 401) {
      const token = await hooks.token(tries > 0);
      if (token === null) throw await problem(response);
      sessionStorage.setItem(KEY, token);
    } else {
      if (state.connection.kind !== "ok") change({ connection: { kind: "ok" } });
      throw await problem(response);
    }
  }
}

// Nothing where nobody answered.
async function once(path, body, signal) {
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body) headers["Content-Type"] = body.type.startsWith("image/") ? body.type : "application/octet-stream";
  try {
    return await fetch(path, { method: body ? "POST" : "GET", body, headers, signal, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    return null;
  }
}

async function problem(response) {
  try {
    const { error } = await response.json();
    return new Failed(response.status, error.code, error.message);
  } catch {
    return new Failed(response.status, "unknown", `HTTP ${response.status}`);
  }
}

async function backAgain(signal) {
  for (let pause = 0.5; ; pause = Math.min(pause * 1.5, 3)) {
    await sleep(pause, signal);
    try {
      if ((await fetch("readyz", { signal, cache: "no-store" })).ok) return;
    } catch (error) {
      if (signal?.aborted) throw error;
    }
  }
}

function sleep(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
