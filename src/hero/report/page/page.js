
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 4", "8 3 2 3", "2 3"];
const COLOURS = 8;
const TRUTH_AND_PREDICTION = [[6, 0], [1, 1]];
const ERROR_RANGE = [1e-8, 1e3];

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

const ruler = document.createElement("canvas").getContext("2d");

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

function tickText(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  return size >= 1e5 || size < 1e-3 ? x.toExponential(0).replace("e+", "e") : String(Number(x.toPrecision(6)));
}

function setUpTheme() {
  const button = byId("theme");
  const root = document.documentElement;
  const show = (dark) => {
    root.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", dark ? "Use light colours" : "Use dark colours");
  };
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  let chosen = false;
  show(preferred.matches);
  preferred.addEventListener("change", () => { if (!chosen) show(preferred.matches); });
  button.addEventListener("click", () => { chosen = true; show(root.dataset.theme !== "dark"); });
  button.hidden = false;
}

function sortKey(row, column) {
  const raw = row.cells[column].dataset.value;
  if (raw === undefined) return null;
  const number = raw === "inf" ? Infinity : raw === "-inf" ? -Infinity : Number(raw);
  return Number.isNaN(number) ? raw : number;
}

function compareKeys(a, b) {
  if (typeof a === "number" && typeof b === "number") return a === b ? 0 : a < b ? -1 : 1;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function setUpSorting(table) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = element("button", { type: "button" }, heading.textContent);
    heading.replaceChildren(button);
    heading.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const direction = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      headings.forEach((other) => other.setAttribute("aria-sort", other === heading ? direction : "none"));
      for (const body of table.tBodies) {  // each section by itself, below its heading
        const keyed = [...body.rows].filter((row) => !row.matches(".section")).map((row) => [sortKey(row, column), row]);
        keyed.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);  // a missing value comes last both ways
          return direction === "ascending" ? compareKeys(a, b) : compareKeys(b, a);
        });
        body.append(...keyed.map(([, row]) => row));
      }
    });
  });
}

// The numbers between which an axis reaches, and its marks.
function logTicks(low, high) {
  const ticks = [];
  const decades = Math.log10(high / low);
  const every = Math.max(1, Math.ceil(decades / 7));
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of decades < 1 ? [1, 2, 3, 5, 7] : decades < 3 ? [1, 2, 5] : [1]) {
      const tick = Number((factor * 10 ** power).toPrecision(6));
      if (tick >= low && tick <= high && (decades < 3 || power % every === 0)) ticks.push(tick);
    }
  }
  return ticks;
}

function linearTicks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) ticks.push(Number((i * step).toPrecision(9)));
  return ticks;
}

// Wavenumbers from 1 on are logarithmic; the mean mode, 0, is as far from 1 as 2 is.
const wavePlace = (k) => (k < 1 ? k * Math.LN2 : Math.LN2 + Math.log(k));

// A chart of series {label, x, y, low?, high?, points?, time?, dashed?}; null in y is infinite, and time runs from 0, early, to
// 1, late. `options` has title, caption?, xLabel, yLabel, xLog (for wavenumbers), yLog, xName, range?, threshold?, height?,
// styles? (colour and dash of each series); show() reads them again.
class Chart {
  constructor(host, options) {
    this.options = options;
    this.series = [];
    this.off = new Set();
    this.cursor = null;
    this.id = `clip-${Chart.count = (Chart.count || 0) + 1}`;
    this.box = element("div", { class: "chart" });
    if (options.title) this.box.append(element("h3", {}, options.title));
    this.plot = element("div", { class: "plot", tabindex: "0", role: "group" });
    this.legend = element("div", { class: "legend" });
    this.spoken = element("div", { class: "hidden", "aria-live": "polite" });
    this.box.append(this.plot, this.legend, this.spoken);
    if (options.caption) this.box.append(element("p", { class: "note" }, options.caption));
    host.append(this.box);
    this.listen();
    new ResizeObserver(() => {
      if (this.plot.clientWidth !== this.width) this.draw();
    }).observe(this.plot);
  }

  listen() {
    const point = (event) => this.readAt(event.clientX);
    this.plot.addEventListener("pointermove", point);
    this.plot.addEventListener("pointerdown", point);
    this.plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") this.read(null); });
    this.plot.addEventListener("keydown", (event) => {
      const last = this.places.length - 1;
      const now = this.cursor === null ? -1 : this.cursor;
      const moves = { ArrowRight: now + 1, ArrowLeft: now - 1, PageUp: now + 10, PageDown: now - 10, Home: 0, End: last };
      if (event.key === "Escape") this.read(null);
      else if (event.key in moves) this.read(Math.min(last, Math.max(0, moves[event.key])), true);
      else return;
      event.preventDefault();
    });
  }

  show(series) {
    const names = (list) => list.map(({ label }) => label).join("\n");
    const others = names(series) !== names(this.series);
    this.series = series;
    this.places = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
    if (others || this.cursor >= this.places.length) this.cursor = null;
    if (others) this.makeLegend();  // else it keeps what is switched off, and the focus
    this.draw();
  }

  makeLegend() {
    this.off.clear();
    this.values = this.series.map((one, i) => {
      const button = element("button", { type: "button", "aria-pressed": String(!this.off.has(i)) });
      const sample = shape("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" });
      sample.append(shape("line", { x1: 0, x2: 26, y1: 5, y2: 5, "stroke-width": 3, ...this.stroke(i) }));
      const value = element("span", { class: "value" });
      button.append(sample, element("span", {}, one.label), value);
      button.addEventListener("click", () => {
        if (!this.off.delete(i)) this.off.add(i);
        button.setAttribute("aria-pressed", String(!this.off.has(i)));
        this.draw();
      });
      return { button, value };
    });
    this.legend.replaceChildren(...this.values.map(({ button }) => button));
  }

  stroke(i) {
    const { time, dashed } = this.series[i];
    if (time !== undefined) {
      const [early, late, share] = time < 0.5 ? ["--s0", "--s4", 2 * time] : ["--s4", "--s1", 2 * time - 1];
      const stroke = `color-mix(in oklab, var(${late}) ${100 * share}%, var(${early}))`;
      return { stroke, "stroke-width": 1.2 + time, "stroke-dasharray": DASHES[Number(dashed)] };
    }
    const [colour, dash] = this.options.styles ? this.options.styles[i] : [i, i + Math.floor(i / COLOURS)];  // ten lines stay apart
    return { stroke: `var(--s${colour % COLOURS})`, "stroke-dasharray": DASHES[dash % DASHES.length] };
  }

  visible() {
    return this.series.map((one, i) => ({ ...one, i })).filter(({ i }) => !this.off.has(i));
  }

  limits() {
    if (this.options.range) return this.options.range;
    const { yLog, threshold } = this.options;
    const numbers = this.visible().flatMap((one) => [one.y, one.low, one.high].flatMap((values) => values || []))
      .concat(this.visible().flatMap((one) => (one.points || []).map(([, y]) => y)))
      .concat(threshold === undefined ? [] : [threshold])
      .filter((y) => y !== null && (!yLog || y > 0));
    if (!numbers.length) return yLog ? [0.1, 1] : [0, 1];
    let low = Infinity;
    let high = -Infinity;
    for (const y of numbers) { low = Math.min(low, y); high = Math.max(high, y); }
    if (yLog) return [Math.max(low / 1.3, ERROR_RANGE[0]), Math.max(Math.min(high * 1.3, ERROR_RANGE[1]), low * 1.5)];
    if (low >= 0 && low < 0.5 * high) low = 0;
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [low === 0 ? 0 : low - room, high + room];
  }

  draw() {
    const { options } = this;
    const width = this.plot.clientWidth;
    if (!width) return;
    this.width = width;
    const height = options.height || Math.min(340, Math.max(220, width * 0.6));
    const shown = this.visible();
    const direct = width >= 480 && this.series.length > 1;
    const longest = Math.max(...shown.map(({ label }) => textWidth(label)), 0);
    const pad = { left: 66, right: direct ? Math.min(170, 24 + longest) : 12, top: 12, bottom: 38 };
    const [low, high] = this.limits();
    const first = this.places[0];
    const last = this.places.length > 1 ? this.places.at(-1) : first + 1;
    const place = options.xLog ? wavePlace : (x) => x;
    const across = (x) => {
      const share = (place(x) - place(first)) / (place(last) - place(first));
      return pad.left + share * (width - pad.left - pad.right);
    };
    const up = (y) => {
      const share = options.yLog ? Math.log(y / low) / Math.log(high / low) : (y - low) / (high - low);
      return height - pad.bottom - share * (height - pad.top - pad.bottom);
    };
    Object.assign(this, { across, up, pad, height });
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": this.description() });
    const clip = shape("clipPath", { id: this.id });
    clip.append(shape("rect", { x: pad.left, y: pad.top, width: width - pad.left - pad.right, height: height - pad.top - pad.bottom }));
    svg.append(clip);
    this.drawAxes(svg, low, high, first, last, width);
    const inside = shape("g", { "clip-path": `url(#${this.id})` });
    if (options.threshold !== undefined) this.drawThreshold(svg, inside, width);
    for (const one of shown) this.drawSeries(svg, inside, one);
    svg.append(inside);
    if (direct) this.drawLabels(svg, shown, width);
    this.line = shape("line", { class: "cursor", y1: pad.top, y2: height - pad.bottom, visibility: "hidden" });
    this.dots = shape("g");
    this.reading = shape("text", { class: "reading", y: pad.top + 10 });
    svg.append(this.line, this.dots, this.reading);
    this.plot.replaceChildren(svg);
    this.plot.setAttribute("aria-label", `${this.description()} Arrow keys read the values.`);
    this.read(this.cursor);
  }

  description() {
    const { title, yLabel, xLabel, yLog } = this.options;
    return `${title ? `${title}. ` : ""}${yLabel} against ${xLabel}, ${yLog ? "logarithmic" : "linear"}: ${
      this.visible().map(({ label }) => label).join(", ") || "nothing switched on"}.`;
  }

  drawAxes(svg, low, high, first, last, width) {
    const { across, up, pad, height, options } = this;
    const bottom = height - pad.bottom;
    for (const y of options.yLog ? logTicks(low, high) : linearTicks(low, high, 5)) {
      svg.append(shape("line", { class: "grid", x1: pad.left, x2: width - pad.right, y1: up(y), y2: up(y) }));
      svg.append(shape("text", { class: "tick y", x: pad.left - 6, y: up(y) + 4, "text-anchor": "end" }, tickText(y)));
    }
    const waves = () => [...(first < 1 ? [0] : []), ...logTicks(Math.max(1, first), last)];
    for (const x of options.xLog ? waves() : linearTicks(first, last, width < 480 ? 4 : 7)) {
      svg.append(shape("line", { class: "axis", x1: across(x), x2: across(x), y1: bottom, y2: bottom + 4 }));
      svg.append(shape("text", { class: "tick", x: across(x), y: bottom + 17, "text-anchor": "middle" }, tickText(x)));
    }
    svg.append(shape("line", { class: "axis", x1: pad.left, x2: width - pad.right, y1: bottom, y2: bottom }));
    const middle = (pad.left + width - pad.right) / 2;
    svg.append(shape("text", { x: middle, y: height - 5, "text-anchor": "middle" }, options.xLabel));
    const turned = `translate(13 ${(pad.top + bottom) / 2}) rotate(-90)`;
    svg.append(shape("text", { transform: turned, "text-anchor": "middle" }, options.yLabel));
  }

  drawThreshold(svg, inside, width) {
    const { up, pad } = this;
    const y = up(this.options.threshold);
    inside.append(shape("line", { class: "threshold", x1: pad.left, x2: width - pad.right, y1: y, y2: y }));
    svg.append(shape("text", { class: "threshold-label", x: width - pad.right - 6, y: y - 5, "text-anchor": "end" }, `τ = ${this.options.threshold}`));
  }

  drawSeries(svg, inside, one) {
    const { across, pad } = this;
    // Far beyond the frame a coordinate is as good as any other, and browsers stumble over huge ones.
    const up = (y) => Math.min(1e4, Math.max(-1e4, this.options.yLog && y <= 0 ? 1e4 : this.up(y)));
    const stroke = this.stroke(one.i);
    if (one.low && one.high) {
      const there = one.x.map((_, k) => k).filter((k) => one.low[k] !== null);
      const top = (k) => (one.high[k] === null ? -1e4 : up(one.high[k]));
      const edge = [...there.map((k) => [across(one.x[k]), top(k)]), ...there.reverse().map((k) => [across(one.x[k]), up(one.low[k])])];
      const d = edge.map(([x, y], k) => `${k ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
      inside.append(shape("path", { d: `${d}Z`, fill: stroke.stroke, opacity: 0.18, class: "band" }));
    }
    let pen = "M";
    let d = "";
    one.x.forEach((x, k) => {
      if (one.y[k] === null) { pen = "M"; return; }
      d += `${pen}${across(x).toFixed(1)} ${up(one.y[k]).toFixed(1)}`;
      pen = "L";
    });
    inside.append(shape("path", { d, fill: "none", "stroke-width": 2, class: "series", ...stroke }));
    for (const [x, y] of one.points || []) {
      const [a, b] = [across(x), up(y)];
      const within = b >= pad.top && b <= this.height - pad.bottom && x <= this.places.at(-1);
      const diamond = { d: `M${a} ${b - 6}l6 6l-6 6l-6 -6Z`, fill: stroke.stroke, stroke: "var(--ink)", class: "paper" };
      if (within) svg.append(shape("path", diamond));  // whole also at the edge, where the frame would cut it
    }
    const lost = one.y.indexOf(null);
    if (lost >= 0) {
      const [a, b] = [across(one.x[lost]), pad.top + 6];
      const mark = shape("path", { d: `M${a - 5} ${b - 5}l10 10m0 -10l-10 10`, stroke: stroke.stroke, "stroke-width": 2.5, class: "diverged" });
      mark.append(shape("title", {}, `${one.label}: diverged from ${this.options.xName} ${one.x[lost]}`));
      svg.append(mark);
    }
  }

  drawLabels(svg, shown, width) {
    const { pad, height, across } = this;
    const ends = shown.flatMap((one) => {
      const k = one.y.findLastIndex((y) => y !== null);
      if (k < 0) return [];
      const y = Math.min(height - pad.bottom, Math.max(pad.top + 4, this.up(one.y[k])));
      return [{ one, y, x: across(one.x[k]) }];
    }).sort((a, b) => a.y - b.y);
    for (let k = 1; k < ends.length; k += 1) ends[k].y = Math.max(ends[k].y, ends[k - 1].y + 14);
    let floor = height - pad.bottom;
    for (const end of [...ends].reverse()) { end.y = Math.min(end.y, floor); floor = end.y - 14; }
    for (const { one, y } of ends) {
      const x = width - pad.right + 4;
      svg.append(shape("line", { x1: x, x2: x + 10, y1: y, y2: y, "stroke-width": 3, stroke: this.stroke(one.i).stroke }));
      let text = one.label;
      while (textWidth(text) > pad.right - 20 && text.length > 2) text = `${text.slice(0, -2)}…`;
      svg.append(shape("text", { x: x + 14, y: y + 4, class: "direct" }, text));
    }
  }

  readAt(clientX) {
    if (!this.across) return;
    const x = clientX - this.plot.getBoundingClientRect().left;
    let best = 0;
    this.places.forEach((place, k) => {
      if (Math.abs(this.across(place) - x) < Math.abs(this.across(this.places[best]) - x)) best = k;
    });
    this.read(best);
  }

  // Show the values at a place; `aloud` also to a screen reader, for which a moving mouse would be too much.
  read(index, aloud = false) {
    this.cursor = index;
    this.line.setAttribute("visibility", index === null ? "hidden" : "visible");
    this.dots.replaceChildren();
    const place = this.places[index];
    this.reading.textContent = index === null ? "" : `${this.options.xName} ${place}`;
    const said = [];
    this.series.forEach((one, i) => {
      const { value } = this.values[i];
      const k = index === null ? -1 : one.x.indexOf(place);
      value.textContent = "";
      delete value.dataset.value;
      if (k < 0 || this.off.has(i)) return;
      const y = one.y[k];
      const band = one.low ? ` (${formatNumber(one.low[k])} to ${formatNumber(one.high[k])})` : "";
      value.textContent = formatNumber(y) + band;
      value.dataset.value = y === null ? "inf" : y;
      said.push(`${one.label} ${value.textContent}`);
      if (y !== null && (!this.options.yLog || y > 0)) {
        const at = Math.min(1e4, Math.max(this.pad.top, this.up(y)));
        this.dots.append(shape("circle", { cx: this.across(place), cy: at, r: 4, fill: this.stroke(i).stroke }));
      }
    });
    if (index !== null) {
      this.line.setAttribute("x1", this.across(place));
      this.line.setAttribute("x2", this.across(place));
      const right = this.across(place) > this.width / 2;
      this.reading.setAttribute("x", this.across(place) + (right ? -6 : 6));
      this.reading.setAttribute("text-anchor", right ? "end" : "start");
    }
    if (aloud) this.spoken.textContent = `${this.reading.textContent}: ${said.join("; ")}`;
  }
}

function fill(select, items) {
  select.append(...items.map((text, i) => element("option", { value: i }, text)));
}

function setUpCurves() {
  const host = byId("curve-panels");
  if (!host) return;
  const { metrics, panels, tau } = data.curves;
  const choice = byId("curve-metric");
  const scale = byId("curve-scale");
  fill(choice, metrics.map(({ label }) => label));
  const labels = [...new Set(panels.flatMap(({ series }) => series.map(({ label }) => label)))];
  const charts = panels.map((panel) => new Chart(host, {
    title: panel.title, xLabel: "rollout step", xName: "step", yLog: true,
    styles: panel.series.map(({ label }) => [labels.indexOf(label), labels.indexOf(label)]),
  }));
  const show = () => {
    const metric = metrics[choice.value].key;
    const error = metric !== "correlation";
    const log = error && scale.getAttribute("aria-pressed") === "true";
    scale.disabled = !error;
    charts.forEach((chart, i) => {
      Object.assign(chart.options, { yLabel: error ? "relative error (nRMSE)" : "correlation", yLog: log, threshold: error ? tau : undefined });
      chart.show(panels[i].series.map((one) => ({
        label: one.diverged ? `${one.label} (${one.diverged} of ${one.rollouts} diverged)` : one.label,
        x: one[metric].mean.map((_, k) => k + 1),
        y: one[metric].mean,
        low: one[metric].low,
        high: one[metric].high,
        points: metric === "nrmse" ? one.paper : [],
      })));
    });
  };
  choice.addEventListener("change", show);
  scale.addEventListener("click", () => {
    scale.setAttribute("aria-pressed", String(scale.getAttribute("aria-pressed") !== "true"));
    show();
  });
  show();
}

function bytes(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) out[i] = raw.charCodeAt(i);
  return out;
}

function colours(table) {
  const rgb = bytes(table);
  const out = new Uint32Array(256);
  const view = new DataView(out.buffer);
  for (let i = 0; i < 256; i += 1) {
    for (let c = 0; c < 3; c += 1) view.setUint8(4 * i + c, rgb[3 * i + c]);
    view.setUint8(4 * i + 3, 255);
  }
  return out;
}

// `value(column, row)` is a byte, row 0 at the bottom as in a plot.
function paint(canvas, width, height, table, value) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  const pixels = new Uint32Array(picture.data.buffer);
  for (let row = 0; row < height; row += 1) {
    for (let column = 0; column < width; column += 1) {
      pixels[(height - 1 - row) * width + column] = table[value(column, row)];
    }
  }
  context.putImageData(picture, 0, 0);
}

class Player {
  constructor() {
    this.runs = data.players.runs;
    this.tables = [data.players.colours.field, data.players.colours.field, data.players.colours.error].map(colours);
    this.timer = null;
    this.choice = byId("player-run");
    this.slider = byId("player-slider");
    this.play = byId("player-play");
    this.speed = byId("player-speed");
    fill(this.choice, this.runs.map(({ label }) => label));
    this.maps = ["truth", "prediction", "error"].map((name, i) => this.makeMap(name, i));
    const charts = byId("player-charts");
    this.profile = new Chart(charts, { title: "The current step", xLabel: "x", yLabel: "u", xName: "x =", height: 230, styles: TRUTH_AND_PREDICTION });
    this.spectrum = new Chart(charts, {
      title: "Spectrum", xLabel: "wavenumber |k|", yLabel: "mean power per mode", xName: "k =", xLog: true, yLog: true, height: 230, styles: TRUTH_AND_PREDICTION,
    });
    this.choice.addEventListener("change", () => this.choose());
    this.slider.addEventListener("input", () => this.show());
    this.play.addEventListener("click", () => (this.timer === null ? this.start() : this.stop()));
    this.speed.addEventListener("change", () => { if (this.timer !== null) { this.stop(); this.start(); } });
    this.choose();
  }

  makeMap(name, i) {
    const figure = element("figure");
    const canvas = element("canvas", { class: "map", role: "img" });
    const bar = element("canvas", { class: "bar", "aria-hidden": "true" });
    const ends = element("div", { class: "ends" });
    figure.append(element("figcaption", {}, name === "error" ? "error (prediction − truth)" : name), canvas, bar, ends);
    byId("player-fields").append(figure);
    paint(bar, 255, 1, this.tables[i], (column) => column + 1);
    return { name, canvas, ends };
  }

  choose() {
    this.stop();
    const run = this.run = this.runs[this.choice.value];
    this.fields = run.fields.map(bytes);
    this.powers = run.spectra.map((text) => new Float32Array(bytes(text).buffer));
    this.slider.max = run.steps.length - 1;
    this.slider.value = 0;
    this.maps.forEach(({ canvas, ends }, i) => {
      canvas.classList.toggle("flat", run.shape.length === 1);
      const limit = formatNumber(run.limits[i]);
      ends.replaceChildren(...[`−${limit}`, i < 2 ? run.unit : "", limit].map((text) => element("span", {}, text)));
    });
    this.profile.box.hidden = run.shape.length !== 1;
    this.profile.options.yLabel = run.unit;
    this.profile.options.range = [-1.1 * run.limits[0], 1.1 * run.limits[0]];
    this.spectrum.options.range = run.power_range;
    byId("player-notes").textContent = run.notes.join(" ");
    this.show();
  }

  show() {
    const { run } = this;
    const frame = Number(this.slider.value);
    const step = run.steps[frame];
    const error = run.nrmse ? `, nRMSE ${formatNumber(run.nrmse[frame])}` : "";
    const text = `step ${step} of ${run.length} (t = ${Number((step * run.dt).toPrecision(4))})${error}`;
    byId("player-step").textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    if (run.shape.length === 1) this.showSpaceTime(frame);
    else this.showField(frame);
    const waves = this.powers[0].length / run.steps.length;
    const place = Array.from({ length: waves }, (_, k) => k + 1);
    this.spectrum.show(["truth", "prediction"].map((label, i) => ({
      label, x: place, y: [...this.powers[i].subarray(frame * waves, (frame + 1) * waves)].map((p) => (Number.isFinite(p) ? 10 ** p : null)),
    })));
    this.maps.forEach(({ canvas, name }) => canvas.setAttribute("aria-label", `${name} of ${run.label}, ${text}`));
  }

  showSpaceTime(frame) {
    const { run } = this;
    const [points] = run.shape;
    this.maps.forEach(({ canvas }, i) => {
      paint(canvas, run.steps.length, points, this.tables[i], (column, row) => this.fields[i][column * points + row]);
      const context = canvas.getContext("2d");
      context.fillStyle = "#000000";
      context.fillRect(frame, 0, 1, points);
    });
    const x = Array.from({ length: points }, (_, k) => Number(((k * run.extent) / points).toPrecision(4)));
    this.profile.show(["truth", "prediction"].map((label, i) => ({
      label, x, y: x.map((_, k) => {
        const level = this.fields[i][frame * points + k];
        return level ? ((level - 128) / 127) * run.limits[i] : null;
      }),
    })));
  }

  showField(frame) {
    const [across, up] = this.run.shape;
    this.maps.forEach(({ canvas }, i) => {
      const start = frame * across * up;
      paint(canvas, across, up, this.tables[i], (column, row) => this.fields[i][start + column * up + row]);
    });
  }

  start() {
    if (this.slider.value === this.slider.max) { this.slider.value = 0; this.show(); }
    this.play.textContent = "Pause";
    this.timer = setInterval(() => {
      this.slider.value = Number(this.slider.value) + 1;
      this.show();
      if (this.slider.value === this.slider.max) this.stop();
    }, 1000 / Number(this.speed.value));
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
  }
}

function setUpTraining() {
  const choice = byId("training-run");
  if (!choice) return;
  fill(choice, data.training.map(({ label }) => label));
  const host = byId("training-charts");
  const waves = byId("spectra-charts");
  const show = () => {
    host.replaceChildren();
    waves.replaceChildren();
    const { charts, spectra } = data.training[choice.value];
    for (const { title, scale, series } of charts) {
      const options = { title, xLabel: "optimiser step", xName: "step", yLabel: "", yLog: scale === "log", height: 210 };
      new Chart(host, options).show(series);
    }
    for (const { title, caption, unit, range, series } of spectra) {
      const axes = { xLabel: "wavenumber |k|", xName: "k =", yLabel: unit, xLog: true, yLog: true, range };
      new Chart(waves, { title, caption, height: 280, ...axes }).show(series);
    }
  };
  choice.addEventListener("change", show);
  show();
}

setUpTheme();
document.querySelectorAll("table.sortable").forEach(setUpSorting);
setUpCurves();
if (byId("player-run")) new Player();
setUpTraining();
})();
