// Who looks at whom: one token, one layer, one head (equation 2, A.6), and all layers and heads at a glance.

import { attentionRow } from "./looked.js";
import { pixels } from "./colours.js";
import { make, percent } from "./dom.js";
import { caution, gridTable, headSlider, layerSlider, mixSlider, needsImage, opening, range, readButton } from "./panel.js";
import { asShares, looking, strongest } from "./rows.js";
import { change, shownToken, state } from "./state.js";
import { say, tokenName } from "./words.js";

let parts = null;

export const attention = { name: "attention", tokens: true, can: (model) => model.can.attention, mount, update, overlay: attentionOverlay, data };

export function attentionOverlay(image) {
  const found = looking(image, state.layer, state.head, shownToken());
  if (!found) return null;
  // Where no class token looks, all patches do.
  const isAll = shownToken() === "read" && !state.model.class_token;
  const words = say(isAll ? "whereAllLook" : "whereLooks", { token: tokenName(shownToken()), layer: state.layer, head: state.head < 0 ? say("meanHead") : say("headN", { n: state.head }) });
  return { ...asShares(found.patches, words), prefix: found.prefix };
}

function data(image) {
  const found = looking(image, state.layer, state.head, shownToken());
  return { layer: state.layer, head: state.head, token: shownToken(), attention: found?.patches, to_prefix: found?.prefix, maps: image.maps };
}

function mount(panel) {
  parts = { layer: layerSlider(), head: headSlider(), read: readButton(), mix: mixSlider(), most: make("ol", { class: "most", id: "most" }), prefix: make("p", { class: "quiet", id: "to-prefix" }), grid: headGrid(), table: gridTable("attention-table"), empty: needsImage() };
  panel.append(
    ...opening("attention", { heads: state.model.num_heads, layers: state.model.depth }),
    parts.empty,
    make("div", { class: "controls" }, parts.read.row, parts.layer.row, parts.head.row, parts.mix.row),
    make("h3", { textContent: say("allHeads") }), make("p", { class: "quiet", textContent: say(state.model.class_token ? "allHeadsLead" : "allHeadsLeadMean") }), parts.grid.table,
    make("h3", { textContent: say("looksMostAt") }), parts.most, parts.prefix,
    parts.table.details,
    caution(say("notProof")),
  );
}

function update() {
  for (const part of [parts.layer, parts.head, parts.read, parts.mix]) part.update();
  const image = state.images.a;
  parts.empty.hidden = Boolean(image?.seen);
  parts.grid.update(image);
  // Fetched before anyone points at a patch, so that the first one is shown at once.
  if (image?.seen && !image.pending) attentionRow(image, state.layer, Math.min(state.model.prefix_tokens, state.model.tokens - 1));
  const overlay = image?.seen ? attentionOverlay(image) : null;
  parts.table.update(overlay);
  const prefix = state.model.prefix_tokens;
  const best = overlay ? strongest(overlay.values, 5) : [];
  parts.most.replaceChildren(...best.map(({ value, patch }) => make("li", {}, tokenName(patch + prefix), make("b", { textContent: percent(value) }))));
  parts.prefix.textContent = overlay?.prefix?.length
    ? overlay.prefix.map((value, token) => say("toToken", { name: tokenName(token), share: percent(value) })).join(" · ")
    : "";
}

// A small map for every layer and head, as the class token looks; a click chooses it.
function headGrid() {
  const { depth, num_heads: heads } = state.model;
  const cells = [];
  const rows = range(heads).map((head) => {
    const row = make("tr", {}, make("th", { scope: "row", textContent: String(head) }));
    for (const layer of range(depth)) {
      const canvas = make("canvas", { "aria-hidden": "true" });
      const button = make("button", {
        type: "button", "aria-label": say("layerHead", { layer, head }), onclick: () => change({ layer, head }), onkeydown: (event) => move(event, layer, head),
      }, canvas);
      cells.push({ layer, head, canvas, button });
      row.append(make("td", {}, button));
    }
    return row;
  });
  const top = make("tr", {}, make("td", { class: "corner" }), ...range(depth).map((layer) => make("th", { scope: "col", textContent: String(layer) })));
  const grid = make("table", { class: "heads", id: "heads" }, make("caption", { textContent: say("headsCaption") }), make("thead", {}, top), make("tbody", {}, ...rows));
  // Few layers make no giants.
  grid.style.maxWidth = `${80 * depth + 30}px`;
  const table = make("div", { class: "heads-holder" }, grid);
  let shown = null;
  const move = (event, layer, head) => {
    const to = { ArrowUp: [layer, head - 1], ArrowDown: [layer, head + 1], ArrowLeft: [layer - 1, head], ArrowRight: [layer + 1, head] }[event.key];
    if (!to || to[0] < 0 || to[1] < 0 || to[0] >= depth || to[1] >= heads) return;
    event.preventDefault();
    change({ layer: to[0], head: to[1] });
    cells[to[1] * depth + to[0]].button.focus();
  };
  const update = (image) => {
    table.hidden = !image?.maps;
    const chosen = Math.max(0, state.head) * depth + state.layer;
    cells.forEach(({ layer, head, button }, place) => {
      const isChosen = layer === state.layer && (head === state.head || state.head < 0);
      button.setAttribute("aria-pressed", String(isChosen));
      button.tabIndex = place === chosen ? 0 : -1;
    });
    if (!image?.maps || shown === image.maps) return;
    shown = image.maps;
    for (const { layer, head, canvas } of cells) {
      const values = image.maps[layer][head].flat();
      pixels(canvas, values, state.model.grid, "heat", 0, Math.max(...values));
      canvas.dataset.values = `[${values.join(",")}]`;
    }
  };
  return { table, update };
}
