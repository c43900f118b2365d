// How alike the position embeddings of two patches are (Figure 7, centre; D.4).

import { askNumbers } from "./api.js";
import { pixels } from "./colours.js";
import { make } from "./dom.js";
import { gridTable, mixSlider, opening } from "./panel.js";
import { change, shownToken, state } from "./state.js";
import { say, tokenName } from "./words.js";

let found = null;
let foundOf = null;
let parts = null;

export const positions = {
  name: "positions",
  tokens: true,
  can: (model) => model.can.positions,
  mount,
  update,
  overlay,
  data: () => ({ patch: patch(), similarity: found && Array.from(of(patch())) }),
};

// Without a patch under the pointer it is the middle one.
function patch() {
  const { grid, prefix_tokens: prefix } = state.model;
  const token = shownToken();
  if (token !== "read" && token >= prefix) return token - prefix;
  return Math.floor(grid[0] / 2) * grid[1] + Math.floor(grid[1] / 2);
}

function of(place) {
  const count = state.model.grid[0] * state.model.grid[1];
  return found.values.subarray(place * count, (place + 1) * count);
}

function overlay() {
  if (!found) return null;
  return { values: of(patch()), scale: "signed", low: -1, high: 1, words: say("similarTo", { name: tokenName(patch() + state.model.prefix_tokens) }) };
}

function mount(panel) {
  const [height, width] = state.model.grid;
  parts = { one: make("canvas", { id: "position-map", class: "map", role: "img" }), all: make("canvas", { id: "position-tiles", class: "map", role: "img", "aria-label": say("tilesLabel") }), mix: mixSlider(), table: gridTable("positions-table"), drawn: null };
  parts.all.style.aspectRatio = parts.one.style.aspectRatio = `${width} / ${height}`;
  parts.all.addEventListener("pointermove", (event) => {
    const box = parts.all.getBoundingClientRect();
    const column = Math.min(width - 1, Math.floor(((event.clientX - box.left) / box.width) * width));
    const row = Math.min(height - 1, Math.floor(((event.clientY - box.top) / box.height) * height));
    change({ hover: row * width + column + state.model.prefix_tokens });
  });
  parts.all.addEventListener("pointerleave", () => change({ hover: null }));
  panel.append(
    ...opening("positions"),
    make("div", { class: "two" },
      make("figure", {}, parts.one, make("figcaption", { id: "position-caption" })),
      make("figure", {}, parts.all, make("figcaption", { textContent: say("tilesCaption") }))),
    parts.mix.row,
    parts.table.details,
  );
}

function update() {
  fetchOnce();
  parts.mix.update();
  if (!found) return;
  const now = overlay();
  pixels(parts.one, now.values, state.model.grid, "signed", -1, 1);
  parts.one.dataset.values = `[${Array.from(now.values).join(",")}]`;
  parts.one.setAttribute("aria-label", now.words);
  parts.one.nextElementSibling.textContent = now.words;
  parts.table.update(now);
  if (parts.drawn !== found) {
    parts.drawn = found;
    tiles();
  }
}

// About as many pixels as the picture has on a sharp screen, so that tiles stay clear when it is fitted to the page.
const WIDE = 960;

// The picture of the paper: a tile for every patch, with a thin line between them.
function tiles() {
  const [height, width] = state.model.grid;
  const tile = make("canvas");
  const larger = Math.max(3, Math.round(WIDE / width ** 2));
  const gap = Math.max(3, Math.round(WIDE / width / 24));
  const [canvas, step] = [parts.all, [larger * height + gap, larger * width + gap]];
  [canvas.height, canvas.width] = [height * step[0] - gap, width * step[1] - gap];
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  for (let place = 0; place < height * width; place += 1) {
    pixels(tile, of(place), state.model.grid, "signed", -1, 1);
    context.drawImage(tile, (place % width) * step[1], Math.floor(place / width) * step[0], larger * width, larger * height);
  }
}

async function fetchOnce() {
  if (foundOf === state.model.generation) return;
  foundOf = state.model.generation;
  found = null;
  try {
    found = await askNumbers("v1/positions");
  } catch {
    found = null;
  }
  change({});
}
