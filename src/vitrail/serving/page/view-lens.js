// What the head would answer if the network ended after each layer.

import { make, percent } from "./dom.js";
import { needsImage, opening } from "./panel.js";
import { state } from "./state.js";
import { className, say } from "./words.js";

// More guesses than these leave no room for long names.
const SHOWN = 3;

let parts = null;

export const lens = { name: "lens", can: (model) => model.can.lens, mount, update, data: (image) => ({ lens: image.lens }) };

function mount(panel) {
  parts = { said: make("p", { class: "said", id: "lens-said" }), holder: make("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": say("tab_lens") }), empty: needsImage(), shown: null };
  panel.append(...opening("lens"), parts.empty, parts.said, parts.holder, make("p", { class: "quiet below", textContent: say("lensNote") }));
}

function update() {
  const image = state.images.a;
  parts.empty.hidden = Boolean(image?.seen);
  const found = image?.lens ?? null;
  if (parts.shown === found) return;
  parts.shown = found;
  parts.holder.replaceChildren();
  parts.said.textContent = "";
  if (!found) return;
  const final = found.at(-1).top[0];
  const settled = found.findLastIndex((row) => row.top[0].index !== final.index) + 1;
  parts.said.textContent = say(settled === 0 ? "lensAlways" : settled === found.length - 1 ? "lensLast" : "lensSettled", { name: className(final), n: settled, depth: found.length - 1 });
  const columns = Math.min(SHOWN, found[0].top.length);
  const head = make("tr", {}, make("th", { scope: "col", textContent: say("afterBlocks") }), ...Array.from({ length: columns }, (_, place) => make("th", { scope: "col", textContent: say("guess", { n: place + 1 }) })));
  const rows = found.map((row, layer) => make("tr", { class: layer >= settled ? "settled" : "" }, make("th", { scope: "row", textContent: String(row.layer) }), ...row.top.slice(0, columns).map((entry) => cell(entry, final))));
  parts.holder.append(make("table", { class: "lens", id: "lens" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}

function cell(entry, final) {
  const bar = make("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = `${100 * entry.probability}%`;
  const shown = make("td", { class: entry.index === final.index ? "final" : "" }, make("span", { class: "label", textContent: className(entry) }), make("span", { class: "share", textContent: percent(entry.probability, 0) }), bar);
  shown.dataset.probability = entry.probability;
  return shown;
}
