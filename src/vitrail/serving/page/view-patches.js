// What the network reads: patches, and the filters that it reads them with (equation 1; Figure 7, left).

import { askJson } from "./api.js";
import { make, percent } from "./dom.js";
import { opening } from "./panel.js";
import { cellSize, change, shownToken, state, tokenNumbers } from "./state.js";
import { number, say, tokenName } from "./words.js";

let parts = null;
let filters = null; // of one generation of the model
let filtersOf = null;

export const patches = {
  name: "patches",
  tokens: true,
  numbers: true,
  can: () => true,
  mount,
  update,
  data: () => ({ filters }),
};

function mount(panel) {
  const { model } = state;
  const [height, width] = model.image_size;
  parts = {
    close: make("canvas", { class: "close-up", role: "img" }),
    words: make("p", {}),
    numbers: make("p", { class: "values" }),
    filters: make("div", { class: "filters", id: "filters", role: "list" }),
    note: make("p", { class: "quiet" }),
    box: null,
  };
  const [h, w] = cellSize();
  parts.box = make("div", { class: "close", hidden: true }, parts.close, make("div", {}, parts.words, parts.numbers));
  panel.append(
    ...opening("patches", { height, width, n: number(model.grid[0] * model.grid[1]), h, w, dim: number(model.width), map: model.stem?.map.map(number).join(" × ") }),
    make("label", { class: "check" }, make("input", {
      type: "checkbox", id: "numbers", checked: state.numbers ?? true,
      onchange: (event) => change({ numbers: event.target.checked ? null : false }),
    }), say("showNumbers")),
    parts.box,
  );
  if (model.can.filters) panel.append(make("h3", { textContent: say("title_filters") }), make("p", { textContent: say(isFirst() ? "lead_filtersFirst" : "lead_filters") }), parts.filters, parts.note);
}

// The filters that are shown read pixels: they are those of E, or of the first convolution where there are such.
const isFirst = () => state.model.patch_size === null || Boolean(state.model.stem);

function update() {
  const { model, images } = state;
  if (model.can.filters) showFilters();
  const token = shownToken();
  const seen = images.a?.seen;
  parts.box.hidden = !seen || token === "read" || token < model.prefix_tokens;
  if (parts.box.hidden) return;
  const [h, w] = cellSize();
  const patch = token - model.prefix_tokens;
  const [row, column] = [Math.floor(patch / model.grid[1]), patch % model.grid[1]];
  const { close } = parts;
  [close.width, close.height] = [w, h];
  const context = close.getContext("2d", { willReadFrequently: true });
  context.drawImage(seen, column * w, row * h, w, h, 0, 0, w, h);
  close.setAttribute("aria-label", tokenName(token));
  const count = h * w * model.channels;
  const pixels = say(model.channels === 1 ? "pixelsGrey" : "pixelsChannels", { h, w, channels: model.channels });
  parts.words.textContent = say(model.patch_size === null ? "patchArea" : model.stem ? "patchStem" : "patchNumbers", { name: tokenName(token), h, w, pixels, count: number(tokenNumbers()), dim: number(model.width ?? 0) });
  const { data } = context.getImageData(0, 0, w, h);
  const first = [];
  for (let place = 0; first.length < 12 && place < data.length; place += 4) {
    for (let channel = 0; channel < Math.min(3, model.channels); channel += 1) first.push(data[place + channel]);
  }
  parts.numbers.textContent = `${first.slice(0, 12).join(", ")}${count > 12 ? ", …" : ""}`;
}

async function showFilters() {
  if (filtersOf !== state.model.generation) {
    filtersOf = state.model.generation;
    filters = null;
    try {
      filters = await askJson("v1/filters?components=28");
    } catch (error) {
      parts.note.textContent = error.message;
      return;
    }
    change({});
  }
  if (!filters || parts.filters.childElementCount) return;
  const total = filters.shares.reduce((sum, share) => sum + share, 0);
  parts.note.textContent = say("filtersNote", { n: filters.components.length, count: number(filters.count), share: percent(total, 0) });
  parts.filters.append(...filters.components.map((component, place) => {
    const canvas = make("canvas", { role: "img", "aria-label": say("filterN", { n: place + 1, share: percent(filters.shares[place]) }), title: percent(filters.shares[place]) });
    canvas.dataset.values = JSON.stringify(component);
    paint(canvas, component);
    return make("div", { role: "listitem" }, canvas);
  }));
}

// One channel is grey; of more than three the first three are shown.
function paint(canvas, component) {
  [canvas.height, canvas.width] = [component.length, component[0].length];
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  component.flat().forEach((pixel, place) => {
    const [red, green, blue] = pixel.length < 3 ? [pixel[0], pixel[0], pixel[0]] : pixel;
    image.data.set([255 * red, 255 * green, 255 * blue, 255], 4 * place);
  });
  context.putImageData(image, 0, 0);
}
