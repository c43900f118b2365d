// Colours of heat maps: from night through violet and rose to amber, as light comes through glass.

const HEAT = [[20, 22, 48], [66, 38, 116], [150, 46, 120], [218, 84, 80], [242, 160, 62], [255, 243, 196]];
// For cosines: below zero blue, above zero amber, nothing at zero.
const SIGNED = [[24, 62, 120], [90, 146, 200], [238, 236, 230], [228, 158, 66], [132, 58, 12]];

const TABLES = { heat: table(HEAT), signed: table(SIGNED) };

// A number between low and high as [red, green, blue].
export function colour(scale, value, low, high) {
  const place = high > low ? (value - low) / (high - low) : 0;
  return TABLES[scale][Math.round(255 * Math.min(1, Math.max(0, place)))];
}

// A map as a picture of one pixel per number.
export function pixels(canvas, values, [height, width], scale, low, high) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let place = 0; place < width * height; place += 1) {
    image.data.set(colour(scale, values[place], low, high), 4 * place);
    image.data[4 * place + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

function table(stops) {
  return Array.from({ length: 256 }, (_, place) => {
    const at = (place / 255) * (stops.length - 1);
    const [left, part] = [Math.min(Math.floor(at), stops.length - 2), at - Math.min(Math.floor(at), stops.length - 2)];
    return stops[left].map((value, channel) => Math.round(value + part * (stops[left + 1][channel] - value)));
  });
}
