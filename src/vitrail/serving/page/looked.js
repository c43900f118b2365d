// An image and all that the model said about it, asked for as it is needed.

import { askJson, askNumbers } from "./api.js";
import { change, setImage, state } from "./state.js";

// The attention of a layer is fetched whole up to this size, and beyond it a row at a time.
const WHOLE_BYTES = 24 * 2 ** 20;
// Layers that are kept; ViT-B/16 has 12.
const KEPT_LAYERS = 12;

let count = 0;
const running = { a: null, b: null };

// Show a new image: the answer first, then what was seen on the way to it.
export async function look(side, blob, name, note = null, keep = false) {
  const { signal } = begin(side);
  const image = record(blob, name, note);
  // Behind a drawing that goes on, what was seen last stays until there is something newer.
  if (keep && state.images[side]) {
    const { top, seen, rollout, maps, lens, distance } = state.images[side];
    Object.assign(image, { top, seen, rollout, maps, lens, distance });
  }
  image.pending = true;
  setImage(side, image);
  const tell = (parts) => {
    if (state.images[side] !== image) return;
    Object.assign(image, parts);
    change({});
  };
  const answer = state.model.can.predictions
    ? askJson(`v1/predictions?top_k=${topK()}`, blob, signal).then(({ top, frames }) => tell({ top, frames }))
    : null;
  const inside = inspect(image, signal, wantedParts()).then(({ top, ...found }) => tell(found));
  try {
    await Promise.all([answer, inside]);
    tell({ pending: false });
  } catch (error) {
    if (signal.aborted) return;
    tell({ pending: false, error: error.message, code: error.code });
  }
}

// While someone draws: one request, which replaces what is shown only when it is answered.
export async function lookQuickly(side, blob, name, parts) {
  const { signal } = begin(side);
  const image = record(blob, name, null);
  image.isQuick = true;
  try {
    Object.assign(image, await inspect(image, signal, parts));
    setImage(side, image);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

export function forget(side) {
  begin(side);
  setImage(side, null);
}

// What is asked for in one go, as far as the model has it.
export function wantedParts() {
  const { can } = state.model;
  const parts = { seen: true, rollout: can.rollout, maps: can.attention, lens: can.lens, distance: can.distance };
  return Object.keys(parts).filter((part) => parts[part]);
}

// The row of attention of one token in one layer: (heads, tokens), or null while it is on its way.
export function attentionRow(image, layer, token) {
  // A drawing under the pen is gone before its attention is there.
  if (image.isQuick || !state.model.can.attention) return null;
  const { tokens, num_heads: heads } = state.model;
  const whole = heads * tokens * tokens * 4 <= WHOLE_BYTES;
  const key = whole ? `${layer}` : `${layer}:${token}`;
  const found = image.attention.get(key);
  if (found === undefined) fetchAttention(image, key, layer, whole ? null : token);
  if (!found?.values) return null;
  return Array.from({ length: heads }, (_, head) => {
    const start = whole ? (head * tokens + token) * tokens : head * tokens;
    return found.values.subarray(start, start + tokens);
  });
}

// What the covered image is answered; the answer for the same patches is asked for once.
export async function cover(image, patches) {
  if (image.isQuick) return;
  const key = patches.join(",");
  if ((image.cover?.key ?? "") === key) return;
  image.cover?.stop.abort();
  if (!patches.length) {
    image.cover = null;
    change({});
    return;
  }
  const stop = new AbortController();
  const previous = image.cover?.top ?? null;
  image.cover = { key, stop, top: previous, pending: true };
  change({});
  try {
    const classes = state.model.num_classes;
    const found = await askJson(`v1/occlusions?patches=${key}&top_k=${Math.min(classes, 1000)}`, image.blob, stop.signal);
    if (image.cover?.key === key) Object.assign(image.cover, { top: found.top, pending: false });
  } catch (error) {
    if (stop.signal.aborted) return;
    image.cover = { key, stop, top: null, error: error.message };
  }
  change({});
}

export async function features(image) {
  if (image.features !== undefined || image.isQuick) return;
  image.features = null;
  try {
    image.features = (await askJson("v1/embeddings", image.blob)).features;
  } catch {
    image.features = null;
  }
  change({});
}

function record(blob, name, note) {
  count += 1;
  return { id: count, blob, name, note, top: null, attention: new Map() };
}

function begin(side) {
  running[side]?.abort();
  running[side] = new AbortController();
  return running[side];
}

async function inspect(image, signal, parts) {
  const ranked = state.model.can.predictions ? `&top_k=${topK()}` : "";
  const found = await askJson(`v1/inspections?parts=${parts.join(",")}${ranked}`, image.blob, signal);
  return { ...found, seen: await decoded(found.seen.png) };
}

async function fetchAttention(image, key, layer, query) {
  image.attention.set(key, null);
  const place = query === null ? "" : `&query=${query}`;
  try {
    image.attention.set(key, await askNumbers(`v1/attention?layer=${layer}${place}`, image.blob));
    const kept = [...image.attention.keys()];
    if (kept.length > KEPT_LAYERS && query === null) image.attention.delete(kept[0]);
  } catch (error) {
    image.attention.set(key, { error: error.message });
  }
  change({});
}

async function decoded(url) {
  const picture = new Image();
  picture.src = url;
  await picture.decode();
  return picture;
}

const topK = () => Math.min(5, state.model.num_classes);
