// From strokes of a pen to the picture that a network of digits was trained on.

// The share of the box that the ink fills, and the width of a stroke as a share of the box. Digits of scikit-learn
// touch top and bottom; those of MNIST lie in the middle 20 of 28 pixels, around their centre of mass.
const FITS = {
  28: { height: 20 / 28, width: 20 / 28, pen: 0.085, byMass: true },
  32: { height: 20 / 28, width: 20 / 28, pen: 0.085, byMass: true },
  other: { height: 1, width: 0.75, pen: 0.18, byMass: false },
};
// Finer than a pixel, and then averaged, so that edges are grey as they are in scans.
const FINER = 16;

// Strokes are lists of [x, y] in any unit; the answer is a canvas with bright ink on black.
export function fitted(strokes, [height, width], crop) {
  const fit = FITS[height] ?? FITS.other;
  const fine = new OffscreenCanvas(width * FINER, height * FINER);
  const context = fine.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#000";
  context.fillRect(0, 0, fine.width, fine.height);
  // What a centre crop would cut away is left empty.
  const room = crop ?? 1;
  const box = [fine.width * fit.width * room, fine.height * fit.height * room];
  const pen = fine.height * fit.pen * room;
  const points = strokes.flat();
  const [left, right] = [Math.min(...points.map((p) => p[0])), Math.max(...points.map((p) => p[0]))];
  const [top, bottom] = [Math.min(...points.map((p) => p[1])), Math.max(...points.map((p) => p[1]))];
  // A dot is a dot, not a circle that fills the box.
  const scale = Math.min((box[0] - pen) / Math.max(right - left, 1e-6), (box[1] - pen) / Math.max(bottom - top, 1e-6));
  const usable = points.length < 2 || !Number.isFinite(scale) || Math.max(right - left, bottom - top) < 1 ? 1 : scale;
  const place = ([x, y]) => [
    fine.width / 2 + (x - (left + right) / 2) * usable,
    fine.height / 2 + (y - (top + bottom) / 2) * usable,
  ];
  ink(context, strokes.map((stroke) => stroke.map(place)), pen);
  if (fit.byMass) centreMass(context, fine);
  // Without a crop the picture has just the pixels that the network reads, so that nothing blurs it again.
  return crop ? fine : averaged(context, width, height);
}

export function ink(context, strokes, pen, colour = "#fff") {
  Object.assign(context, { strokeStyle: colour, fillStyle: colour, lineWidth: pen, lineCap: "round", lineJoin: "round" });
  for (const stroke of strokes) {
    context.beginPath();
    context.moveTo(...stroke[0]);
    for (const point of stroke.slice(1)) context.lineTo(...point);
    if (stroke.length === 1) context.lineTo(stroke[0][0] + 0.01, stroke[0][1]);
    context.stroke();
  }
}

function centreMass(context, { width, height }) {
  const { data } = context.getImageData(0, 0, width, height);
  let [mass, x, y] = [0, 0, 0];
  for (let place = 0; place < data.length; place += 4) {
    const pixel = place / 4;
    mass += data[place];
    x += data[place] * (pixel % width);
    y += data[place] * Math.floor(pixel / width);
  }
  if (!mass) return;
  const whole = new OffscreenCanvas(width, height);
  whole.getContext("2d").drawImage(context.canvas, 0, 0);
  context.fillRect(0, 0, width, height);
  context.fillStyle = "#000";
  context.fillRect(0, 0, width, height);
  context.drawImage(whole, width / 2 - x / mass, height / 2 - y / mass);
}

function averaged(context, width, height) {
  const { data } = context.getImageData(0, 0, width * FINER, height * FINER);
  const canvas = new OffscreenCanvas(width, height);
  const small = canvas.getContext("2d");
  const pixels = small.createImageData(width, height);
  for (let row = 0; row < height; row += 1) {
    for (let column = 0; column < width; column += 1) {
      let sum = 0;
      for (let y = 0; y < FINER; y += 1) {
        for (let x = 0; x < FINER; x += 1) sum += data[4 * ((row * FINER + y) * width * FINER + column * FINER + x)];
      }
      const value = Math.round(sum / (FINER * FINER));
      pixels.data.set([value, value, value, 255], 4 * (row * width + column));
    }
  }
  small.putImageData(pixels, 0, 0);
  return canvas;
}
