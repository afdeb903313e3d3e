/** The grid of KV blocks: one cell for each block, or for every so many-th of very many. */

import { count, seconds, setText, shortName } from "./format.js";
import { CACHED, CellPainter, FIRST_REQUEST, FREE, OTHER, PROMISED_CACHED, PROMISED_FREE, SHARED }
  from "./palette.js";

const SMALLEST = 3; // CSS pixels from one cell to the next
const LARGEST = 18;
const SMALLEST_GAPPED = 5; // the canvas's own pixels: smaller cells touch each other
const EMPTY_HEIGHT = 200;
const DIMMED = 0.2;
const WORDS = {
  [FREE]: "free",
  [CACHED]: "free, and its content is still cached",
  [PROMISED_FREE]: "free, and promised: among the next to be taken",
  [PROMISED_CACHED]: "cached, and promised: its content will be given up",
  [SHARED]: "shared by several requests",
  [OTHER]: "held by a request that is not listed",
};

export class BlockGrid {
  /** @param onPick called with the number of a request whose block was chosen */
  constructor({ box, canvas, readout, onPick }) {
    this.box = box;
    this.canvas = canvas;
    this.readout = readout;
    this.onPick = onPick;
    this.colors = null;
    this.view = null;
    this.codes = new Int32Array(0);
    this.lit = null; // number of the request whose blocks stand out
    this.cursor = null; // the cell that is read out
    this.layout = null;
    this.height = EMPTY_HEIGHT; // kept while there are no blocks: the page does not jump
    new ResizeObserver(() => this.draw()).observe(box);
    canvas.addEventListener("pointermove", (event) => this.point(this.cellAt(event)));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("click", (event) => this.pick(this.cellAt(event)));
    box.addEventListener("keydown", (event) => this.onKey(event));
  }

  show(view) {
    this.view = view;
    this.codes = view === null ? new Int32Array(0) : decodeRuns(view.map);
    if (this.cursor !== null && this.cursor >= this.codes.length) this.cursor = null;
    this.draw();
    this.describe();
  }

  use(colors) {
    this.colors = colors;
    this.draw();
  }

  light(number) {
    this.lit = number;
    this.draw();
  }

  draw() {
    const width = this.box.clientWidth;
    if (this.colors === null || width === 0) return;
    const scale = devicePixelRatio;
    const layout = chooseLayout(this.codes.length, width, window.innerWidth > 560 ? 360 : 320);
    this.layout = layout;
    const { canvas } = this;
    canvas.width = Math.round(width * scale);
    if (this.codes.length > 0) this.height = layout.height;
    canvas.height = Math.round(this.height * scale);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${this.height}px`;
    const context = canvas.getContext("2d");
    this.paint(context, scale, false);
    if (this.lit !== null) {
      context.fillStyle = this.colors.panel;
      context.globalAlpha = 1 - DIMMED;
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.globalAlpha = 1;
      this.paint(context, scale, true);
    }
    this.drawCursor(context, scale);
  }

  /** @param onlyLit paint the cells of the request that stands out, over all others dimmed */
  paint(context, scale, onlyLit) {
    const { columns, pitch, skip } = this.layout;
    const painter = new CellPainter(context, this.colors);
    const step = pitch * scale;
    const gap = step < SMALLEST_GAPPED ? 0 : Math.max(1, Math.round(step / 7));
    const size = Math.ceil(step) - gap;
    for (let place = 0; place * skip < this.codes.length; place += 1) {
      const code = this.codes[place * skip];
      const number = this.numberOf(code);
      if (onlyLit && number !== this.lit) continue;
      const x = Math.round((place % columns) * step);
      const y = Math.round(Math.floor(place / columns) * step);
      painter.add(code, number ?? 0, x, y, size);
    }
    painter.paint();
  }

  drawCursor(context, scale) {
    if (this.cursor === null) return;
    const { columns, pitch, skip } = this.layout;
    const place = Math.floor(this.cursor / skip);
    const step = pitch * scale;
    context.strokeStyle = this.colors.ink;
    context.lineWidth = 2 * scale;
    const [x, y] = [(place % columns) * step, Math.floor(place / columns) * step];
    context.strokeRect(x - scale, y - scale, step + scale, step + scale);
  }

  /** Number of the request behind a code, or null if no listed one holds the block. */
  numberOf(code) {
    return code >= FIRST_REQUEST ? this.view.requests[code - FIRST_REQUEST].number : null;
  }

  cellAt(event) {
    if (this.layout === null) return null;
    const { columns, pitch, skip } = this.layout;
    const column = Math.floor(event.offsetX / pitch);
    const cell = (Math.floor(event.offsetY / pitch) * columns + column) * skip;
    return column < columns && cell >= 0 && cell < this.codes.length ? cell : null;
  }

  point(cell) {
    if (cell === this.cursor) return;
    this.cursor = cell;
    this.draw();
    this.describe();
  }

  pick(cell) {
    if (cell === null) return;
    const number = this.numberOf(this.codes[cell]);
    if (number !== null) this.onPick(number);
  }

  onKey(event) {
    const { columns = 1, skip = 1 } = this.layout ?? {};
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    if (event.key in steps && this.codes.length > 0) {
      const last = Math.floor((this.codes.length - 1) / skip);
      const place = this.cursor === null ? 0 : this.cursor / skip + steps[event.key];
      this.point(Math.min(Math.max(place, 0), last) * skip);
    } else if (event.key === "Enter" && this.cursor !== null) {
      this.pick(this.cursor);
    } else if (event.key === "Escape") {
      this.point(null);
    } else {
      return;
    }
    event.preventDefault();
  }

  /** Says what the cell under the pointer or the keys is, or how to read the picture. */
  describe() {
    setText(this.readout, this.cursor === null ? this.explain() : this.describeCell(this.cursor));
  }

  describeCell(cell) {
    const code = this.codes[cell];
    const block = count(1 + cell * this.view.map.stride);
    if (code < FIRST_REQUEST) return `Block ${block}: ${WORDS[code]}.`;
    const request = this.view.requests[code - FIRST_REQUEST];
    return `Block ${block}: held by ${shortName(request.id)} (${request.phase}, `
      + `${count(request.num_tokens)} of at most ${count(request.max_tokens)} tokens, `
      + `arrived ${seconds(request.age_seconds)} ago).`;
  }

  explain() {
    const shown = (this.view?.map.stride ?? 1) * (this.layout?.skip ?? 1);
    const hint = "Point at a block, or use the arrow keys, to see whose it is.";
    return shown > 1 ? `Shown is 1 block in ${count(shown)}; the counts are of all. ${hint}` : hint;
  }
}

function decodeRuns(map) {
  const codes = new Int32Array(map.num_cells);
  let at = 0;
  for (let index = 0; index < map.runs.length; index += 2) {
    codes.fill(map.runs[index], at, at + map.runs[index + 1]);
    at += map.runs[index + 1];
  }
  return codes;
}

/** The largest cells with which all fit; if even the smallest do not, some are skipped. */
function chooseLayout(numCells, width, maxHeight) {
  for (let pitch = LARGEST; pitch >= SMALLEST; pitch -= 1) {
    const columns = Math.max(1, Math.floor(width / pitch));
    const height = Math.ceil(numCells / columns) * pitch;
    if (height <= maxHeight) return { columns, pitch, height, skip: 1 };
  }
  const columns = Math.max(1, Math.floor(width / SMALLEST));
  const skip = Math.ceil(numCells / (columns * Math.floor(maxHeight / SMALLEST)));
  const height = Math.ceil(numCells / skip / columns) * SMALLEST;
  return { columns, pitch: SMALLEST, height, skip };
}
