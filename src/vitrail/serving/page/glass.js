// The window itself: the image as the network sees it, cut into patches, with a heat map and a token looked from.

import { colour } from "./colours.js";
import { make } from "./dom.js";
import { Legend, numberUnder } from "./legend.js";
import { strongest } from "./rows.js";
import { cellSize, change, shownToken, state, subscribe } from "./state.js";
import { say, tokenName } from "./words.js";
import { overlayOf, presentView } from "./views.js";

const SMALL = 64;
// What is said in the words of the page; other problems in those of the server.
const PROBLEMS = { unreadable_image: "unreadable", damaged_image: "damaged" };

export class Glass {
  constructor(holder, side) {
    this.side = side;
    this.canvas = make("canvas", { class: "glass", id: `canvas-${side}`, tabIndex: 0, role: "application" });
    this.invitation = make("span");
    this.hint = make("span", { class: "hint" });
    this.empty = make("p", { class: "empty" }, this.invitation, this.hint);
    this.legend = new Legend();
    this.frame = make("div", { class: "frame" }, this.canvas, this.empty);
    holder.dataset.side = side;
    holder.classList.add("window");
    holder.replaceChildren(this.frame, this.legend.row);
    this.cursor = 0;
    this.painting = null;
    this.listen();
    subscribe(() => this.show());
    new ResizeObserver(() => this.show()).observe(this.frame);
  }

  get image() {
    return state.images[this.side];
  }

  get isCovering() {
    return Boolean(presentView().covers) && this.side === "a";
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => this.pointed(event));
    canvas.addEventListener("pointerleave", () => change({ hover: null }));
    canvas.addEventListener("pointerdown", (event) => {
      this.pressed(event);
      if (this.painting !== null) canvas.setPointerCapture(event.pointerId);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (this.painting = null));
    canvas.addEventListener("click", (event) => this.clicked(event));
    canvas.addEventListener("keydown", (event) => this.typed(event));
    canvas.addEventListener("blur", () => {
      this.focused = false;
      change({ hover: null });
    });
    canvas.addEventListener("focus", () => {
      this.focused = canvas.matches(":focus-visible");
      this.show();
    });
  }

  patchAt(event) {
    const { grid } = state.model;
    const box = this.canvas.getBoundingClientRect();
    const [share, tall] = covering();
    const column = Math.floor(((event.clientX - box.left) / (box.width * share)) * grid[1]);
    const row = Math.floor(((event.clientY - box.top) / (box.height * tall)) * grid[0]);
    return row >= 0 && row < grid[0] && column >= 0 && column < grid[1] ? row * grid[1] + column : null;
  }

  pointed(event) {
    if (!this.image?.seen) return;
    const patch = this.patchAt(event);
    if (patch === null) return;
    if (this.painting !== null) this.coverOrNot(patch, this.painting);
    const token = patch + state.model.prefix_tokens;
    this.cursor = patch;
    if (token !== state.hover) change({ hover: token });
  }

  pressed(event) {
    if (!this.image?.seen || !this.isCovering) return;
    const patch = this.patchAt(event);
    if (patch === null) return;
    this.painting = !state.covered.includes(patch);
    this.coverOrNot(patch, this.painting);
  }

  // A click and not a press, so that a finger may scroll the page over the window.
  clicked(event) {
    if (!this.image?.seen || this.isCovering) return;
    const patch = this.patchAt(event);
    if (patch !== null) this.pin(patch);
  }

  pin(patch) {
    const token = patch + state.model.prefix_tokens;
    if (state.pinned && state.token === token) change({ pinned: false, token: "read" });
    else change({ pinned: true, token });
  }

  coverOrNot(patch, isCovered) {
    const others = state.covered.filter((one) => one !== patch);
    if (isCovered === state.covered.includes(patch)) return;
    change({ covered: (isCovered ? [...others, patch] : others).sort((a, b) => a - b) });
  }

  typed(event) {
    if (!this.image?.seen) return;
    const { grid, depth } = state.model;
    const [row, column] = [Math.floor(this.cursor / grid[1]), this.cursor % grid[1]];
    const moves = { ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1] };
    const move = moves[event.key];
    if (move) {
      const [r, c] = [Math.min(grid[0] - 1, Math.max(0, move[0])), Math.min(grid[1] - 1, Math.max(0, move[1]))];
      this.cursor = r * grid[1] + c;
      this.focused = true;
      change({ hover: this.cursor + state.model.prefix_tokens, pinned: presentView().covers ? state.pinned : false });
    } else if (event.key === "Enter" || event.key === " ") {
      if (this.isCovering) this.coverOrNot(this.cursor, !state.covered.includes(this.cursor));
      else this.pin(this.cursor);
    } else if (event.key === "Escape" || event.key === "Home") change({ pinned: false, hover: null, token: "read" });
    else if (event.key === "PageUp" || event.key === "PageDown") {
      const step = event.key === "PageUp" ? 1 : -1;
      change({ layer: Math.min((depth ?? 1) - 1, Math.max(0, state.layer + step)) });
    } else return;
    event.preventDefault();
  }

  show() {
    if (!state.model) return;
    const { image, canvas, frame } = this;
    const [height, width] = state.model.image_size;
    frame.style.aspectRatio = `${width} / ${height}`;
    frame.classList.toggle("waiting", Boolean(image?.pending));
    canvas.hidden = !image?.seen;
    this.empty.hidden = Boolean(image?.seen);
    this.invitation.textContent = this.words();
    this.hint.hidden = Boolean(image) || this.side !== "a";
    this.hint.textContent = say("dropHint");
    this.empty.classList.toggle("error", Boolean(image?.error));
    // Where patches are painted over, a finger paints and does not scroll.
    canvas.style.touchAction = this.isCovering ? "none" : "manipulation";
    canvas.dataset.pending = String(Boolean(image?.pending));
    canvas.dataset.image = String(image?.id);
    const overlay = image?.seen ? overlayOf(image) : null;
    this.legend.show(overlay, Boolean(image?.seen));
    if (!image?.seen) {
      delete canvas.dataset.values;
      return;
    }
    canvas.setAttribute("aria-label", say(presentView().covers ? "glassCover" : state.model.can.attention ? "glassLabel" : "glassPlain", { name: image.name }));
    if (overlay?.values) canvas.dataset.values = `[${Array.from(overlay.values).join(",")}]`;
    else delete canvas.dataset.values;
    this.paint(overlay);
  }

  paint(overlay) {
    const { canvas } = this;
    const ratio = devicePixelRatio || 1;
    const [height, width] = state.model.image_size;
    const across = Math.max(1, Math.round(this.frame.clientWidth * ratio));
    const down = Math.max(1, Math.round((across * height) / width));
    if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
    paintGlass(canvas.getContext("2d"), across, down, ratio, this.image, overlay, {
      isMain: this.side === "a",
      hover: presentView().covers || presentView().points ? state.hover : null,
      token: presentView().tokens ? shownToken() : null,
    });
  }

  // What stands in the window while there is no image in it.
  words() {
    const { image } = this;
    if (image?.error) return say(PROBLEMS[image.code] ?? "failed", { name: image.name, reason: image.error });
    if (image) return say("reading");
    if (this.side === "b") return say("emptySecond");
    return say(state.drawing ? "emptyDrawn" : "emptyGlass");
  }
}

// The share of the image that whole patches cover; what does not fill one is dropped.
function covering() {
  const { grid, image_size: size } = state.model;
  const [height, width] = cellSize();
  return [(width * grid[1]) / size[1], (height * grid[0]) / size[0]];
}

export function paintGlass(context, across, down, ratio, image, overlay, { isMain, hover, token }) {
  const { grid, prefix_tokens: prefix } = state.model;
  const [share, tall] = covering();
  const [cellWidth, cellHeight] = [(across * share) / grid[1], (down * tall) / grid[0]];
  const cell = (patch) => {
    const [row, column] = [Math.floor(patch / grid[1]), patch % grid[1]];
    const [left, top] = [Math.round(column * cellWidth), Math.round(row * cellHeight)];
    return [left, top, Math.round((column + 1) * cellWidth) - left, Math.round((row + 1) * cellHeight) - top];
  };
  context.imageSmoothingEnabled = image.seen.width >= SMALL;
  // Under a heat map the image gives up its colours, so that those of the map are the only ones.
  context.filter = overlay?.values ? "grayscale(1)" : "none";
  context.drawImage(image.seen, 0, 0, across, down);
  context.filter = "none";
  if (overlay?.values) {
    for (let patch = 0; patch < overlay.values.length; patch += 1) {
      // Where there is little to see on the map, more of the image is.
      const share = overlay.scale === "heat" ? overlay.values[patch] / overlay.high : 1;
      context.globalAlpha = state.mix * (0.68 + 0.32 * Math.sqrt(share));
      context.fillStyle = `rgb(${colour(overlay.scale, overlay.values[patch], overlay.low, overlay.high).join()})`;
      context.fillRect(...cell(patch));
    }
    context.globalAlpha = 1;
  }
  if (isMain && presentView().covers) for (const patch of state.covered) hatch(context, cell(patch), ratio);
  lead(context, cell, grid, ratio, Math.min(cellWidth, cellHeight));
  if (state.numbers ?? presentView().numbers) numbers(context, cell, grid, ratio, Math.min(cellWidth, cellHeight));
  if (hover !== null && hover >= prefix) outline(context, cell(hover - prefix), ratio, "#ffffff");
  if (token !== null && token !== "read" && token >= prefix) {
    outline(context, cell(token - prefix), ratio, state.pinned ? "#ffd166" : "#ffffff");
  }
}

// As thin as the patches are small.
function lead(context, cell, grid, ratio, size) {
  const width = Math.max(1, Math.min(3, size / 24 / ratio)) * ratio;
  context.beginPath();
  const last = cell(grid[0] * grid[1] - 1);
  const [right, bottom] = [last[0] + last[2], last[1] + last[3]];
  for (let column = 1; column < grid[1]; column += 1) {
    const [left] = cell(column);
    context.moveTo(left, 0);
    context.lineTo(left, bottom);
  }
  for (let row = 1; row < grid[0]; row += 1) {
    const [, top] = cell(row * grid[1]);
    context.moveTo(0, top);
    context.lineTo(right, top);
  }
  context.lineWidth = width;
  context.strokeStyle = "rgba(12, 14, 20, 0.6)";
  context.stroke();
  // On black the lead would not be seen without a glint of light.
  context.lineWidth = Math.max(1, width / 3);
  context.strokeStyle = "rgba(255, 255, 255, 0.16)";
  context.stroke();
}

function numbers(context, cell, grid, ratio, size) {
  if (size / ratio < 17) return;
  const letters = Math.max(9, Math.min(14, size / ratio / 3.4)) * ratio;
  context.font = `600 ${letters}px system-ui, sans-serif`;
  context.textBaseline = "top";
  context.lineWidth = 2.5 * ratio;
  context.lineJoin = "round";
  context.strokeStyle = "rgba(10, 12, 18, 0.75)";
  context.fillStyle = "#ffffff";
  for (let patch = 0; patch < grid[0] * grid[1]; patch += 1) {
    const [left, top] = cell(patch);
    const text = String(patch + state.model.prefix_tokens);
    context.strokeText(text, left + 3 * ratio, top + 3 * ratio);
    context.fillText(text, left + 3 * ratio, top + 3 * ratio);
  }
}

function outline(context, [left, top, width, height], ratio, light) {
  context.lineJoin = "round";
  for (const [line, style] of [[5, "rgba(10, 12, 18, 0.85)"], [2.5, light]]) {
    context.lineWidth = line * ratio;
    context.strokeStyle = style;
    context.strokeRect(left, top, width, height);
  }
}

function hatch(context, [left, top, width, height], ratio) {
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.fillStyle = "#6f7480";
  context.fillRect(left, top, width, height);
  context.strokeStyle = "rgba(255, 255, 255, 0.35)";
  context.lineWidth = 1.5 * ratio;
  context.beginPath();
  for (let x = -height; x < width; x += 7 * ratio) {
    context.moveTo(left + x, top + height);
    context.lineTo(left + x + height, top);
  }
  context.stroke();
  context.restore();
}

// For those who hear the page: what is under the pointer or the arrow keys, said when it rests.
export function tellToken(live) {
  let said = "";
  let timer = 0;
  subscribe(() => {
    const view = presentView();
    if (!state.images.a?.seen || !(view.tokens || view.points)) return;
    clearTimeout(timer);
    // What was let go is no longer said.
    if (state.hover === null && !said) return;
    timer = setTimeout(() => {
      const words = state.hover === null ? "" : wordsUnder(overlayOf(state.images.a));
      if (words !== said) live.textContent = (said = words) || tokenName(shownToken());
    }, 250);
  });
}

function wordsUnder(overlay) {
  const under = numberUnder(overlay);
  if (under !== null) return under;
  // How alike positions are is no looking.
  const best = overlay?.scale === "heat" ? strongest(overlay.values, 1)[0] : null;
  if (best === null) return tokenName(shownToken());
  return say("looksMost", { token: tokenName(shownToken()), other: tokenName(best.patch + state.model.prefix_tokens), share: (100 * best.value).toFixed(1) });
}
