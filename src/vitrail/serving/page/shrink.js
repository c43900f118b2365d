// Files beyond the server's limits are made smaller here, so that a large photo is answered and not refused.

const LONG_SIDE = 2048;
const QUALITY = 0.92;

// The file itself where it is within the limits, otherwise a smaller one and the sizes before and after.
export async function fitting(file, limits) {
  const picture = await opened(file);
  // What the browser cannot read, the server may: it decides.
  if (!picture) return { blob: file, from: null };
  const { naturalWidth: width, naturalHeight: height } = picture;
  if (file.size <= limits.bytes && width * height <= limits.pixels) return { blob: file, from: null };
  const scale = Math.min(1, LONG_SIDE / Math.max(width, height));
  const canvas = new OffscreenCanvas(Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale)));
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  const blob = await canvas.convertToBlob({ type: "image/jpeg", quality: QUALITY });
  return { blob, from: [width, height], to: [canvas.width, canvas.height] };
}

async function opened(file) {
  const url = URL.createObjectURL(file);
  const picture = new Image();
  picture.src = url;
  try {
    await picture.decode();
    return picture;
  } catch {
    return null;
  } finally {
    URL.revokeObjectURL(url);
  }
}
