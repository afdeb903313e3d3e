/** Numbers and names as people read them. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const oneDigit = new Intl.NumberFormat("en", {
  minimumFractionDigits: 1,
  maximumFractionDigits: 1,
});

export const count = (value) => whole.format(value);

/** Three digits are enough for a rate or a time that moves. */
export const rate = (value) => (value > 0 && value < 10 ? oneDigit : whole).format(value);

export const percent = (share) => `${whole.format(100 * share)} %`;

export function seconds(value) {
  if (value < 0.0995) return `${whole.format(1000 * value)} ms`;
  if (value < 60) return `${oneDigit.format(value)} s`;
  return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
}

/** The end of a request's name: its beginning is the same for all. */
export const shortName = (id) => (id.length > 12 ? `…${id.slice(-6)}` : id);

/** Sets an element's text, and leaves it alone when it is that already. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** An element with a class and a text; what it says is never read as HTML. */
export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}
