// The views: one question each, as tabs beside the image. A view that this model cannot fill is left out, with the reason.

import { attention } from "./view-attention.js";
import { compare } from "./view-compare.js";
import { cover } from "./view-cover.js";
import { distance } from "./view-distance.js";
import { equations } from "./view-equations.js";
import { lens } from "./view-lens.js";
import { patches } from "./view-patches.js";
import { positions } from "./view-positions.js";
import { rollout } from "./view-rollout.js";
import { find, make } from "./dom.js";
import { change, state, subscribe } from "./state.js";
import { say } from "./words.js";

// Each: name; can(model); mount(panel), update(); overlay(image), data(image), picture() where there are such;
// tokens: patches are looked from; points: the patch under the pointer is told its number; numbers: patches show theirs; covers: patches are covered.
export const VIEWS = [patches, positions, attention, distance, rollout, lens, cover, compare, equations];

export const presentView = () => VIEWS.find((view) => view.name === state.view);

export const overlayOf = (image) => presentView().overlay?.(image) ?? null;

const available = () => VIEWS.filter((view) => view.can(state.model));

let mounted = "";

export function startViews() {
  subscribe(show);
}

export function go(name) {
  const view = VIEWS.find((one) => one.name === name);
  if (view?.can(state.model)) change({ view: name });
}

function show() {
  if (!state.model) return;
  if (!presentView().can(state.model)) {
    change({ view: available()[0].name });
    return;
  }
  const key = `${state.view}|${state.language}|${state.model.generation}`;
  if (key !== mounted) {
    mounted = key;
    showTabs();
    const panel = find("panel");
    panel.replaceChildren();
    panel.dataset.view = state.view;
    panel.setAttribute("aria-labelledby", `tab-${state.view}`);
    presentView().mount(panel);
    tellMissing(panel);
  }
  presentView().update?.();
}

function showTabs() {
  const tabs = available().map((view, place) =>
    make("button", {
      type: "button", role: "tab", id: `tab-${view.name}`, class: `shard-${VIEWS.indexOf(view)}`,
      "aria-selected": String(view.name === state.view), "aria-controls": "panel", tabIndex: view.name === state.view ? 0 : -1,
      onclick: () => change({ view: view.name }),
      onkeydown: (event) => step(event, place),
    }, make("span", { class: "shard", "aria-hidden": "true" }), say(`tab_${view.name}`)),
  );
  const held = document.activeElement?.getAttribute("role") === "tab";
  find("tabs").replaceChildren(...tabs);
  const chosen = find(`tab-${state.view}`);
  if (held) chosen.focus();
  const row = find("tabs");
  row.scrollTo?.({ left: chosen.offsetLeft - row.clientWidth / 2 + chosen.clientWidth / 2 });
}

function step(event, place) {
  const there = available();
  const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: there.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  change({ view: there[(to + there.length) % there.length].name });
}

// What is left out, and why: at the end of a view, but at once where most is left out and this is the first that one sees.
function tellMissing(panel) {
  const { patch_size: cut, can } = state.model;
  const left = VIEWS.filter((view) => !view.can(state.model)).map((view) => say(`tab_${view.name}`));
  if (!can.filters) left.push(say("filters"));
  if (!left.length) return;
  // Without its filters it is not the network that the server has.
  const reasons = [cut === null && "noAttention", can.attention && !can.positions && "noTable", !can.predictions && "noClasses", !can.filters && "exportedFile"].filter(Boolean);
  const told = make("p", { class: "missing", textContent: [say("leftOut", { parts: left.join(", ") }), ...reasons.map((reason) => say(reason))].join(" ") });
  if (can.attention || presentView() !== available()[0]) panel.append(told);
  else {
    told.classList.add("first");
    panel.querySelector(".lead").after(told);
  }
}
