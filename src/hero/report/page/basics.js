// What all scripts of the page share.

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 4", "8 3 2 3", "2 3"];
const COLOURS = 8;
const ERROR_RANGE = [1e-8, 1e3];
const SAVED_WIDTH = 720;
const NARROWEST = 150;

const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, text = null) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function shape(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

const ruler = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

// Width in pixels of a label in the font of the charts.
function textWidth(text) {
  ruler.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

// The rule of hero.report.tables.format_number: three significant digits.
function formatNumber(x) {
  if (x === null) return "∞";
  if (x === undefined || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  if (x === 0 || (size >= 999.5 && size < 1e6)) return x.toFixed(0);
  const rounded = Number(size.toPrecision(3));
  if (rounded < 1e-4 || rounded >= 1000) {
    const [digits, power] = x.toExponential(2).split("e");
    return `${digits}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  }
  return x.toPrecision(3);
}

// The end of an axis or of a colour scale: a coordinate is not rounded to three digits.
function formatEnd(x) {
  return Math.abs(x) >= 1000 && Math.abs(x) < 1e6 ? String(Number(x.toPrecision(6))) : String(Number(x.toPrecision(4))).replace("-", "−");
}

function tickText(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  return size >= 1e5 || size < 1e-3 ? x.toExponential(0).replace("e+", "e") : String(Number(x.toPrecision(6)));
}

function fill(select, items) {
  select.append(...items.map((text, i) => element("option", { value: i }, text)));
}

// Where a key leads from place `now` of 0 .. last; undefined for other keys.
function placeAfter(key, now, last) {
  const moves = { ArrowRight: now + 1, ArrowLeft: now - 1, PageUp: now + 10, PageDown: now - 10, Home: 0, End: last };
  return key in moves ? Math.min(last, Math.max(0, moves[key])) : undefined;
}
