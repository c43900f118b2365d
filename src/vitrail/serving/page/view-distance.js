// How far each head looks, by depth (Figure 7, right; Figure 11).

import { drawn, make } from "./dom.js";
import { needsImage, numbersTable, opening, range } from "./panel.js";
import { change, noticing, state } from "./state.js";
import { say } from "./words.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [560, 340, 46, 14, 16, 40];

let parts = null;

export const distance = { name: "distance", can: (model) => model.can.distance, mount, update, data: (image) => ({ distance: image.distance, uniform: uniform() }), picture: () => parts?.plot.querySelector("svg") };

function mount(panel) {
  parts = { plot: make("div", { class: "plot", id: "distance" }), table: numbersTable("distance-table"), empty: needsImage(), said: make("p", { class: "said", id: "distance-said" }), isNew: noticing() };
  panel.append(...opening("distance"), parts.empty, parts.plot, parts.said, parts.table.details, make("p", { class: "quiet", textContent: say("distanceNote") }));
}

function update() {
  const image = state.images.a;
  parts.empty.hidden = Boolean(image?.seen);
  const found = image?.distance ?? null;
  parts.table.update(found, found, range(state.model.num_heads ?? 0).map((n) => say("headN", { n })), range(state.model.depth ?? 0).map((n) => say("layerN", { n })), (value) => value.toFixed(2));
  if (!parts.isNew(found, state.layer, state.head)) return;
  parts.plot.replaceChildren(...(found ? [plot(found)] : []));
  const here = found?.[state.layer];
  parts.said.textContent = here ? say("distanceSaid", { layer: state.layer, least: Math.min(...here).toFixed(1), most: Math.max(...here).toFixed(1) }) : "";
}

// What a head measures that looks at all patches alike.
function uniform() {
  const { grid, patch_size: size } = state.model;
  const places = range(grid[0] * grid[1]).map((patch) => [Math.floor(patch / grid[1]) * size[0], (patch % grid[1]) * size[1]]);
  let sum = 0;
  for (const [y, x] of places) for (const [b, a] of places) sum += Math.hypot(y - b, x - a);
  return sum / places.length ** 2;
}

function plot(found) {
  const even = uniform();
  const most = 1.08 * Math.max(even, ...found.flat());
  const x = (layer) => LEFT + ((layer + 0.5) / found.length) * (WIDTH - LEFT - RIGHT);
  const y = (pixels) => HEIGHT - BOTTOM - (pixels / most) * (HEIGHT - TOP - BOTTOM);
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": say("distanceLabel") });
  const text = (words, attributes) => {
    const element = drawn("text", attributes);
    element.textContent = words;
    return element;
  };
  const step = nice(most / 4);
  for (let line = 0; line <= most; line += step) {
    svg.append(drawn("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(line), y2: y(line) }), text(String(Math.round(line * 100) / 100), { x: LEFT - 8, y: y(line) + 4, "text-anchor": "end" }));
  }
  const every = Math.ceil(found.length / 16);
  for (const layer of range(found.length)) if (layer % every === 0) svg.append(text(String(layer), { x: x(layer), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }));
  svg.append(
    text(say("layer"), { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }),
    text(say("pixelsAway"), { x: LEFT - 38, y: 10 }),
    drawn("line", { class: "even", x1: LEFT, x2: WIDTH - RIGHT, y1: y(even), y2: y(even) }),
    text(say("evenLine"), { x: LEFT + 4, y: y(even) - 7, class: "even" }),
    drawn("polyline", { class: "mean", points: found.map((row, layer) => `${x(layer)},${y(row.reduce((a, b) => a + b) / row.length)}`).join(" ") }),
  );
  for (const [layer, row] of found.entries()) {
    for (const [head, pixels] of row.entries()) {
      const isChosen = layer === state.layer && (head === state.head || state.head < 0);
      // Heads stand a little apart, so that one does not hide another that looks as far.
      const apart = (head - (row.length - 1) / 2) * Math.min(12, (0.7 * (WIDTH - LEFT - RIGHT)) / found.length / row.length);
      const dot = drawn("circle", { class: isChosen ? "dot chosen" : "dot", cx: x(layer) + apart, cy: y(pixels), r: isChosen ? 7 : 5 });
      const title = drawn("title");
      title.textContent = say("distanceDot", { layer, head, pixels: pixels.toFixed(1) });
      dot.append(title);
      dot.dataset.value = pixels;
      dot.addEventListener("click", () => change({ layer, head }));
      svg.append(dot);
    }
  }
  return svg;
}

function nice(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return power * ([1, 2, 5, 10].find((times) => times * power >= step) ?? 10);
}
