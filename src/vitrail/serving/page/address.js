// The state of the page in its address, so that a view can be kept and sent.

import { change, state, subscribe } from "./state.js";

const VIEW = /^[a-z]+$/;

export function startAddress(views) {
  read(views);
  addEventListener("hashchange", () => read(views));
  subscribe(write);
}

// After the model is known, or another one is served: what it does not have is brought into its range.
export function intoRange() {
  const { depth, num_heads: heads, tokens, grid } = state.model;
  const last = (depth ?? 1) - 1;
  change({
    layer: Math.min(Math.max(state.layer, 0), last),
    head: state.head < (heads ?? 0) ? state.head : -1,
    token: state.token === "read" || state.token < tokens ? state.token : "read",
    covered: state.covered.filter((patch) => patch < grid[0] * grid[1]),
  });
}

function read(views) {
  const said = new URLSearchParams(location.hash.slice(1));
  const found = {};
  const view = said.get("view");
  if (view && VIEW.test(view) && views.includes(view)) found.view = view;
  for (const name of ["layer", "head", "step"]) {
    const value = Number.parseInt(said.get(name), 10);
    if (Number.isInteger(value) && value >= -1) found[name] = value;
  }
  const token = said.get("token");
  if (token) {
    found.token = /^\d+$/.test(token) ? Number(token) : "read";
    found.pinned = found.token !== "read";
  }
  if (said.has("cover")) found.covered = [...new Set(said.get("cover").split(",").filter(Boolean).map(Number))].filter(Number.isInteger);
  if (["attention", "rollout"].includes(said.get("by"))) found.compareBy = said.get("by");
  if (Object.keys(found).length) change(found);
  if (state.model) intoRange();
}

function write() {
  const said = new URLSearchParams({ view: state.view, layer: state.layer, head: state.head, token: state.pinned ? state.token : "read" });
  if (state.covered.length) said.set("cover", state.covered.join(","));
  if (state.view === "equations") said.set("step", state.step);
  if (state.view === "compare") said.set("by", state.compareBy);
  const hash = `#${said}`;
  if (hash !== location.hash) history.replaceState(null, "", hash);
}
