// What can be taken along: the picture, the numbers behind it, and a link to the view.

import { find } from "./dom.js";
import { paintGlass } from "./glass.js";
import { shownToken, state } from "./state.js";
import { overlayOf, presentView } from "./views.js";
import { className, say } from "./words.js";

const SIDE = 1024;

export function startKeeping() {
  find("save-picture").addEventListener("click", savePicture);
  find("save-numbers").addEventListener("click", saveNumbers);
  find("link").addEventListener("click", copyLink);
}

// The numbers of the present view as the server gave them.
export function numbers() {
  const image = state.images.a;
  const { name, network, generation, grid, image_size, patch_size } = state.model;
  const overlay = image?.seen ? overlayOf(image) : null;
  return {
    model: { name, network, generation, grid, image_size, patch_size },
    view: state.view, layer: state.layer, head: state.head, token: state.token,
    image: image && { name: image.name, top: image.top, frames: image.frames },
    values: overlay ? Array.from(overlay.values) : null,
    ...presentView().data?.(image ?? {}),
  };
}

function saveNumbers() {
  if (!state.model) return;
  const file = new Blob([JSON.stringify(numbers(), null, 1)], { type: "application/json" });
  download(file, "json");
}

async function savePicture() {
  if (!state.model) return;
  const svg = presentView().picture?.();
  const canvas = svg ? await fromSvg(svg) : fromGlass();
  if (canvas) download(await canvas.convertToBlob({ type: "image/png" }), "png");
  else find("live").textContent = say("needsImage");
}

function fromGlass() {
  const image = state.images.a;
  if (!image?.seen) return null;
  const [height, width] = state.model.image_size;
  const across = SIDE;
  const down = Math.round((SIDE * height) / width);
  const overlay = overlayOf(image);
  const lines = [overlay?.words, image.top && `${className(image.top[0])} ${(100 * image.top[0].probability).toFixed(1)} %`, `${state.model.name} · ${state.model.network}`].filter(Boolean);
  const canvas = new OffscreenCanvas(across, down + 20 + 34 * lines.length);
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  paintGlass(context, across, down, 2, image, overlay, { isMain: true, hover: null, token: presentView().tokens ? shownToken() : null });
  context.fillStyle = "#1d2129";
  context.font = "24px system-ui, sans-serif";
  context.textBaseline = "top";
  lines.forEach((line, place) => context.fillText(line, 8, down + 14 + 34 * place, across - 16));
  return canvas;
}

// A drawing takes its looks from the sheet of the page, so they are written into the copy.
async function fromSvg(svg) {
  const copy = svg.cloneNode(true);
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const originals = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, place) => {
    const looks = getComputedStyle(originals[place]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-family", "opacity"]) element.setAttribute(name, looks.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", 2 * width);
  copy.setAttribute("height", 2 * height);
  const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
  const picture = new Image();
  picture.src = url;
  await picture.decode();
  URL.revokeObjectURL(url);
  const canvas = new OffscreenCanvas(2 * width, 2 * height);
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(picture, 0, 0);
  return canvas;
}

function download(blob, kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `vitrail-${state.view}-layer${state.layer}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function copyLink() {
  const button = find("link");
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = say("linkCopied");
  } catch {
    // The address bar has the same link.
    button.textContent = say("linkInBar");
  }
  find("live").textContent = button.textContent;
  setTimeout(() => (button.textContent = say("link")), 2500);
}
