// What the page shows, in one object; whoever shows a part of it is called after every change.

export const state = {
  model: null, // the answer of GET /v1/model
  connection: { kind: "ok" }, // ok | gone | busy | loading
  view: "patches",
  layer: 0,
  head: -1, // -1: the mean over heads
  token: "read", // what the head reads (class token, or all patches), or the number of a token
  pinned: false,
  hover: null, // a token under the pointer, until it leaves
  covered: [], // patches from 0, row by row
  images: { a: null, b: null },
  compareBy: "attention", // or rollout
  step: 0, // of the equations
  drawing: false,
  mix: 0.78, // how much of the heat map covers the image
  numbers: null, // whether patches show their numbers; null: as the view likes
  language: "en",
  theme: "system",
};

const listeners = new Set();
let waiting = false;

export function subscribe(listener) {
  listeners.add(listener);
}

export function change(parts) {
  Object.assign(state, parts);
  if (waiting) return;
  waiting = true;
  // Several changes in one turn are shown once.
  queueMicrotask(() => {
    waiting = false;
    for (const listener of listeners) listener();
  });
}

// Whether any of the values is another than at the last call: what is shown is made again only then. Values are compared
// themselves, because an image under the pen has all its parts at once, and then gets others.
export function noticing() {
  let last = null;
  return (...now) => {
    const isNew = last === null || now.some((value, place) => value !== last[place]);
    last = now;
    return isNew;
  };
}

// Pixels of the image, down and across, that a cell of the grid stands for; the last ones of a BiT may reach beyond it.
export function cellSize() {
  const { patch_size: patch, grid, image_size: size } = state.model;
  return patch ?? size.map((side, place) => Math.ceil(side / grid[place]));
}

// The numbers that E makes a token of: pixels, or what convolutions before it found.
export function tokenNumbers() {
  const { stem, channels } = state.model;
  const [height, width] = stem?.patch_size ?? cellSize();
  return height * width * (stem?.map[2] ?? channels);
}

// The token that is looked from: a pinned one stays, otherwise the one under the pointer.
export function shownToken() {
  return state.pinned || state.hover === null ? state.token : state.hover;
}

export function setImage(side, image) {
  change({ images: { ...state.images, [side]: image } });
}
