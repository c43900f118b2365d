// Two images beside each other, looked at in the same way.

import { attentionOverlay } from "./view-attention.js";
import { rolloutOverlay } from "./view-rollout.js";
import { showBars } from "./bars.js";
import { make, percent } from "./dom.js";
import { Glass } from "./glass.js";
import { chooseFor } from "./intake.js";
import { features, look } from "./looked.js";
import { headSlider, layerSlider, opening, readButton } from "./panel.js";
import { change, noticing, state } from "./state.js";
import { className, say } from "./words.js";

let parts = null;
let glass = null;

export const compare = { name: "compare", tokens: true, can: () => true, mount, update, overlay, data };

function overlay(image) {
  const { can } = state.model;
  if (state.compareBy === "rollout" && can.rollout) return rolloutOverlay(image);
  return can.attention ? attentionOverlay(image) : null;
}

function data() {
  const { a, b } = state.images;
  const of = (image) => image && { name: image.name, top: image.top, values: image.seen ? overlay(image)?.values : null };
  return { by: state.compareBy, layer: state.layer, head: state.head, a: of(a), b: of(b), cosine: cosine() };
}

function mount(panel) {
  const { can } = state.model;
  parts = { holder: make("div", {}), bars: make("div", { class: "answer", id: "answer-b" }), said: make("p", { class: "said", id: "compare-said" }), table: make("div", {}), controls: [], isNew: noticing() };
  // The window is made once: it listens to the state for as long as the page is open.
  if (glass) parts.holder = glass.frame.parentElement;
  else glass = new Glass(parts.holder, "b");
  const row = make("div", { class: "row" },
    make("button", { type: "button", id: "choose-b", class: "main", textContent: say("chooseSecond"), onclick: () => chooseFor("b") }),
    make("button", { type: "button", id: "copy-b", textContent: say("copyFirst"), onclick: () => state.images.a && look("b", state.images.a.blob, state.images.a.name) }));
  const by = make("div", { class: "row", role: "group", "aria-label": say("compareBy") });
  if (can.attention && can.rollout) {
    for (const name of ["attention", "rollout"]) by.append(make("button", { type: "button", id: `by-${name}`, textContent: say(`tab_${name}`), onclick: () => change({ compareBy: name }) }));
  }
  parts.by = by;
  const sliders = make("div", { class: "controls" });
  if (can.attention) {
    parts.controls = [readButton(), layerSlider(), headSlider()];
    sliders.append(...parts.controls.map((control) => control.row));
  }
  parts.sliders = sliders;
  panel.append(...opening(can.attention ? "compare" : "compareAnswers"), row, by, make("div", { class: "second" }, parts.holder, parts.bars), parts.said, parts.table, sliders);
}

function update() {
  for (const control of parts.controls) control.update();
  for (const button of parts.by.children) button.setAttribute("aria-pressed", String(button.id === `by-${state.compareBy}`));
  parts.sliders.hidden = state.compareBy === "rollout";
  const { a, b } = state.images;
  if (parts.isNew(a?.top, a?.name, b, b?.top, b?.pending)) {
    showBars(parts.bars, b);
    parts.table.replaceChildren(...(a?.top && b?.top ? [together(a, b)] : []));
  }
  if (state.model.can.embeddings && a?.top && b?.top && !a.pending && !b.pending) {
    features(a);
    features(b);
  }
  const alike = cosine();
  parts.said.textContent = alike === null ? "" : say("alike", { cosine: alike.toFixed(3) });
}

function cosine() {
  const [one, two] = [state.images.a?.features, state.images.b?.features];
  if (!one || !two) return null;
  const dot = (x, y) => x.reduce((sum, value, place) => sum + value * y[place], 0);
  return dot(one, two) / Math.sqrt(dot(one, one) * dot(two, two));
}

function together(a, b) {
  const classes = new Map([...a.top, ...b.top].map((entry) => [entry.index, entry]));
  const of = (image, index) => {
    const entry = image.top.find((one) => one.index === index);
    return entry ? percent(entry.probability) : "–";
  };
  const head = make("tr", {}, ...[say("class"), say("firstImage", { name: a.name }), say("secondImage", { name: b.name })].map((words) => make("th", { scope: "col", textContent: words })));
  const rows = [...classes.values()].map((entry) => make("tr", {}, make("th", { scope: "row", textContent: className(entry) }), make("td", { textContent: of(a, entry.index) }), make("td", { textContent: of(b, entry.index) })));
  return make("table", { class: "plain" }, make("thead", {}, head), make("tbody", {}, ...rows));
}
