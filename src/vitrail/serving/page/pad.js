// A pad to draw on, answered while the pen moves: about five times a second, one request at a time.

import { find, make } from "./dom.js";
import { fitted, ink } from "./ink.js";
import { forget, look, lookQuickly, wantedParts } from "./looked.js";
import { change, state, subscribe } from "./state.js";
import { say } from "./words.js";

const PAUSE = 200;
// Slower than this, and what is inside waits until the pen is lifted.
const QUICK = 220;
const SIDE = 480;
const COLOURS = ["#1d2129", "#b8443c", "#d9922e", "#4d9464", "#35619c", "#7b5aa6"];

let strokes = [];
let colours = [];
let colour = COLOURS[0];
let canvas = null;
let invitation = null;
let busy = false;
let wanted = false;
let quickEnough = true;
let shownFor = "";

export function startPad() {
  find("draw").addEventListener("click", () => change({ drawing: !state.drawing, ...(state.drawing ? {} : { covered: [] }) }));
  subscribe(show);
}

function show() {
  find("draw").setAttribute("aria-pressed", String(state.drawing));
  find("pad-holder").hidden = !state.drawing;
  // Who draws here needs no file.
  find("choose").classList.toggle("main", !state.drawing);
  find("pair").classList.toggle("drawing", state.drawing);
  const key = `${state.language}${state.model?.channels}`;
  if (!state.drawing || !state.model || key === shownFor) return;
  shownFor = key;
  build();
  paint();
}

const isInk = () => state.model.channels === 1;
const isDigits = () => state.model.labels?.join("") === "0123456789";

function build() {
  canvas = make("canvas", {
    id: "pad", width: SIDE, height: SIDE, tabIndex: 0, role: "img", "aria-label": say("padLabel"),
    class: isInk() ? "ink" : "paper",
  });
  canvas.addEventListener("pointerdown", begin);
  canvas.addEventListener("pointermove", go);
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, end);
  invitation = make("span", { class: "invitation", "aria-hidden": "true", textContent: say(isInk() && isDigits() ? "drawDigit" : "drawHere") });
  const buttons = make(
    "div",
    { class: "row small" },
    make("button", { type: "button", id: "pad-clear", textContent: say("clear"), onclick: clear }),
    make("button", { type: "button", id: "pad-undo", textContent: say("undo"), onclick: undo }),
    isInk() ? examples() : pens(),
  );
  find("pad-holder").replaceChildren(make("div", { class: "sheet" }, canvas, invitation), buttons);
}

// Strokes of our own hand, for those who cannot draw here, and to begin with.
const EXAMPLES = {
  2: [[[130, 150], [170, 80], [260, 60], [330, 110], [330, 190], [250, 290], [130, 420], [350, 420]]],
  5: [[[330, 70], [160, 70], [150, 210], [250, 190], [330, 250], [330, 350], [250, 430], [140, 410]]],
  7: [[[110, 80], [350, 80], [300, 180], [240, 300], [200, 430]], [[190, 250], [330, 250]]],
};

function examples() {
  const row = make("span", { class: "row" }, make("span", { class: "hint", textContent: say("forExample") }));
  for (const [name, lines] of Object.entries(EXAMPLES)) {
    row.append(make("button", {
      type: "button", class: "example", textContent: name, "aria-label": say("exampleOf", { name }),
      onclick: () => {
        strokes = structuredClone(lines);
        colours = strokes.map(() => COLOURS[0]);
        paint();
        finished();
      },
    }));
  }
  return row;
}

function pens() {
  const row = make("span", { class: "row" });
  for (const [place, one] of COLOURS.entries()) {
    const pen = make("button", {
      type: "button", class: "pen", "aria-label": say("pen", { n: place + 1 }), "aria-pressed": String(one === colour),
      onclick: () => {
        colour = one;
        for (const other of row.children) other.setAttribute("aria-pressed", String(other === pen));
      },
    });
    pen.style.background = one;
    row.append(pen);
  }
  return row;
}

function at(event) {
  const box = canvas.getBoundingClientRect();
  return [((event.clientX - box.left) / box.width) * SIDE, ((event.clientY - box.top) / box.height) * SIDE];
}

function begin(event) {
  event.preventDefault();
  canvas.setPointerCapture(event.pointerId);
  strokes.push([at(event)]);
  colours.push(colour);
  paint();
  ask();
}

function go(event) {
  if (!canvas.hasPointerCapture(event.pointerId)) return;
  // Fast pens give several points per frame.
  for (const one of event.getCoalescedEvents?.() ?? [event]) strokes.at(-1).push(at(one));
  strokes.at(-1).push(at(event));
  paint();
  ask();
}

function end(event) {
  if (!canvas.hasPointerCapture(event.pointerId)) return;
  canvas.releasePointerCapture(event.pointerId);
  finished();
}

function clear() {
  strokes = [];
  colours = [];
  wanted = false;
  paint();
  forget("a");
}

function undo() {
  strokes.pop();
  colours.pop();
  paint();
  if (strokes.length) finished();
  else clear();
}

function paint() {
  invitation.hidden = strokes.length > 0;
  const context = canvas.getContext("2d");
  context.fillStyle = isInk() ? "#000" : "#fff";
  context.fillRect(0, 0, SIDE, SIDE);
  for (const [place, stroke] of strokes.entries()) ink(context, [stroke], SIDE * (isInk() ? 0.075 : 0.02), isInk() ? "#fff" : colours[place]);
}

async function picture() {
  const { image_size: size, preprocessing } = state.model;
  const made = isInk() ? fitted(strokes, size, preprocessing?.crop) : copied();
  return made.convertToBlob({ type: "image/png" });
}

function copied() {
  const copy = new OffscreenCanvas(SIDE, SIDE);
  copy.getContext("2d").drawImage(canvas, 0, 0);
  return copy;
}

// While the pen moves.
async function ask() {
  wanted = true;
  if (busy) return;
  busy = true;
  while (wanted && strokes.length) {
    wanted = false;
    const start = performance.now();
    const parts = quickEnough ? wantedParts().filter((part) => part !== "distance") : ["seen"];
    try {
      await lookQuickly("a", await picture(), say("drawing"), parts);
    } catch {
      break;
    }
    const took = performance.now() - start;
    if (parts.length > 1) quickEnough = took < QUICK;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, PAUSE - took)));
  }
  busy = false;
}

// The pen is lifted: everything is asked for once.
async function finished() {
  wanted = false;
  await look("a", await picture(), say("drawing"), null, true);
}
