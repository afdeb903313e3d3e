/** Tokens per second and time per step, from the core's running totals. */

import { count } from "./format.js";

const KEPT_SECONDS = 60;
const WINDOW_SECONDS = 1;
const GAP_SECONDS = 3; // nothing was heard for so long: the line is broken

export class Rates {
  constructor() {
    this.clear();
  }

  clear() {
    this.samples = [];
    this.points = [];
  }

  /** Takes in a view; returns {decode, prefill, stepSeconds}, null where nothing is known. */
  add(view) {
    const previous = this.samples.at(-1);
    const isNew = previous !== undefined && view.num_steps < previous.num_steps;
    if (isNew || view.seconds - previous?.seconds > GAP_SECONDS) this.samples = [];
    if (isNew) this.points = [];
    if (view.seconds !== previous?.seconds) this.samples.push(view);
    while (this.samples.length > 2 && view.seconds - this.samples[1].seconds >= WINDOW_SECONDS) {
      this.samples.shift();
    }
    const latest = measure(this.samples[0], view);
    this.points.push({ seconds: view.seconds, ...latest });
    this.points = this.points.filter((p) => view.seconds - p.seconds <= KEPT_SECONDS);
    return latest;
  }
}

function measure(older, newer) {
  const elapsed = newer.seconds - older.seconds;
  if (elapsed <= 0) return { decode: null, prefill: null, stepSeconds: null };
  const numSteps = newer.num_steps - older.num_steps;
  return {
    decode: (newer.num_decode_tokens - older.num_decode_tokens) / elapsed,
    prefill: (newer.num_prefill_tokens - older.num_prefill_tokens) / elapsed,
    stepSeconds: numSteps > 0 ? (newer.busy_seconds - older.busy_seconds) / numSteps : null,
  };
}

/** Draws one rate of the last minute, the newest at the right, with the largest as its scale. */
export function drawChart(canvas, points, key, colors) {
  const scale = devicePixelRatio;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (width === 0) return;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const known = points.filter((point) => point[key] !== null);
  const largest = Math.max(0, ...known.map((point) => point[key]));
  const base = height - 1;
  context.fillStyle = colors.line;
  context.fillRect(0, base, width, 1);
  if (largest > 0) {
    const newest = points.at(-1).seconds;
    const x = (point) => width * (1 - (newest - point.seconds) / KEPT_SECONDS);
    const y = (point) => base - (height - 16) * (point[key] / largest);
    for (const part of splitAtGaps(known)) drawPart(context, part, x, y, base, colors);
    context.fillStyle = colors.muted;
    context.font = "11px system-ui, sans-serif";
    context.fillText(`peak ${count(largest)} · 60 s`, 0, 9);
  }
}

function splitAtGaps(points) {
  const parts = [];
  for (const point of points) {
    const part = parts.at(-1);
    const isNear = part !== undefined && point.seconds - part.at(-1).seconds <= GAP_SECONDS;
    if (isNear) part.push(point);
    else parts.push([point]);
  }
  return parts;
}

function drawPart(context, part, x, y, base, colors) {
  const line = new Path2D();
  part.forEach((point, index) => line[index ? "lineTo" : "moveTo"](x(point), y(point)));
  const area = new Path2D(line);
  area.lineTo(x(part.at(-1)), base);
  area.lineTo(x(part[0]), base);
  area.closePath();
  context.globalAlpha = 0.15;
  context.fillStyle = colors.accent;
  context.fill(area);
  context.globalAlpha = 1;
  context.strokeStyle = colors.accent;
  context.lineWidth = 1.5;
  context.stroke(line);
}
