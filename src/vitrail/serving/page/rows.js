// Rows of attention: of one head or the mean over heads, and what is strongest in them.

import { attentionRow } from "./looked.js";
import { state } from "./state.js";

export function strongest(values, count) {
  return Array.from(values, (value, patch) => ({ value, patch })).sort((a, b) => b.value - a.value).slice(0, count);
}

export function meanOf(rows) {
  return Array.from(rows[0], (_, place) => rows.reduce((sum, row) => sum + row[place], 0) / rows.length);
}

// How a token looks at the patches and at the tokens before them, or null while that is on its way. What the head
// reads is the class token or, without one, the mean over all patches that look.
export function looking(image, layer, head, token) {
  const prefix = state.model.prefix_tokens;
  if (token === "read") {
    if (!image.maps) return null;
    const maps = image.maps[layer].map((map) => map.flat());
    return { patches: head < 0 ? meanOf(maps) : maps[head], prefix: null };
  }
  const rows = attentionRow(image, layer, token);
  if (!rows) return null;
  const row = head < 0 ? meanOf(rows) : rows[head];
  return { patches: Array.from(row.slice(prefix)), prefix: Array.from(row.slice(0, prefix)) };
}

export function asShares(values, words) {
  return { values, scale: "heat", low: 0, high: Math.max(...values, 1e-12), words };
}
