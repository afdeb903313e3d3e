/** How a block looks: hue and mark of its request, or what it is when nobody holds it. */

export const FREE = 0;
export const CACHED = 1;
export const PROMISED_FREE = 2;
export const PROMISED_CACHED = 3;
export const SHARED = 4;
export const OTHER = 5;
export const FIRST_REQUEST = 6;

const NUM_HUES = 8;
const NUM_MARKS = 4; // plain, dot, bar, corner: with the hue they name 32 requests
const SMALLEST_MARKED = 6;
const NAMES = ["page", "panel", "ink", "muted", "line", "accent", "free", "cached", "promised",
  "shared", "other", ...Array.from({ length: NUM_HUES }, (_, hue) => `hue-${hue}`)];

/** Reads the style sheet's colours as they are in the theme in force. */
export function readColors() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const colors = {};
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    colors[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return colors;
}

/**
 * Collects cells by colour and paints each colour once: thousands of cells cost a few paths.
 * Sizes are in the canvas's own pixels.
 */
export class CellPainter {
  constructor(context, colors) {
    this.context = context;
    this.colors = colors;
    this.fills = new Map();
    this.hatches = new Path2D();
    this.holes = new Path2D();
  }

  /** @param number of the request that holds the block, for codes from FIRST_REQUEST on */
  add(code, number, x, y, size) {
    if (code >= FIRST_REQUEST) return this.addHeld(number, x, y, size);
    if (code === SHARED) return this.addShared(x, y, size);
    if (code === OTHER) return this.fill("other").rect(x, y, size, size);
    this.fill("free").rect(x, y, size, size);
    if (code === CACHED || code === PROMISED_CACHED) this.addInner(x, y, size);
    if (code === PROMISED_FREE || code === PROMISED_CACHED) this.addHatch(x, y, size);
  }

  paint() {
    const { context, colors } = this;
    for (const [name, path] of this.fills) {
      context.fillStyle = colors[name];
      context.fill(path);
    }
    context.fillStyle = colors.panel;
    context.fill(this.holes);
    context.strokeStyle = colors.promised;
    context.lineWidth = Math.max(1, devicePixelRatio);
    context.stroke(this.hatches);
  }

  fill(name) {
    if (!this.fills.has(name)) this.fills.set(name, new Path2D());
    return this.fills.get(name);
  }

  addHeld(number, x, y, size) {
    this.fill(`hue-${number % NUM_HUES}`).rect(x, y, size, size);
    const mark = Math.floor(number / NUM_HUES) % NUM_MARKS;
    if (mark === 0 || size < SMALLEST_MARKED) return;
    const third = Math.max(2, Math.round(size / 3));
    const middle = Math.round((size - third) / 2);
    if (mark === 1) this.holes.rect(x + middle, y + middle, third, third);
    else if (mark === 2) this.holes.rect(x, y + middle, size, Math.max(2, Math.round(size / 5)));
    else this.holes.rect(x + size - third, y, third, third);
  }

  addShared(x, y, size) {
    this.fill("shared").rect(x, y, size, size);
    if (size < SMALLEST_MARKED) return;
    const inset = Math.round(size / 4);
    this.holes.moveTo(x + inset, y + size - inset);
    this.holes.lineTo(x + size - inset, y + inset);
    this.holes.lineTo(x + size - inset, y + size - inset);
    this.holes.closePath();
  }

  addInner(x, y, size) {
    const inset = Math.max(1, Math.round(size / 4));
    this.fill("cached").rect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
  }

  addHatch(x, y, size) {
    this.hatches.moveTo(x, y + size);
    this.hatches.lineTo(x + size, y);
    if (size < 2 * SMALLEST_MARKED) return;
    const half = size / 2;
    this.hatches.moveTo(x, y + half);
    this.hatches.lineTo(x + half, y);
    this.hatches.moveTo(x + half, y + size);
    this.hatches.lineTo(x + size, y + half);
  }
}

/** A small canvas with one cell, for legends and tables. */
export function makeSwatch(code, number = 0) {
  const canvas = document.createElement("canvas");
  canvas.className = "swatch";
  canvas.setAttribute("aria-hidden", "true");
  canvas.dataset.code = String(code);
  canvas.dataset.number = String(number);
  return canvas;
}

export function paintSwatch(canvas, colors) {
  const size = Math.round(14 * devicePixelRatio);
  canvas.width = canvas.height = size;
  const painter = new CellPainter(canvas.getContext("2d"), colors);
  painter.add(Number(canvas.dataset.code), Number(canvas.dataset.number), 0, 0, size);
  painter.paint();
}
