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

function linearTicks(low, high, wanted, least = 0) {
  const rough = Math.max((high - low) / wanted, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) ticks.push(Number((i * step).toPrecision(9)));
  return ticks;
}

// Wavenumbers from 1 on are logarithmic; the mean mode, 0, is as far from 1 as 2 is.
const wavePlace = (k) => (k < 1 ? k * Math.LN2 : Math.LN2 + Math.log(k));

// A chart of series {label, x, y, low?, high?, points?, idle?}; null in y is infinite, undefined a gap; an
// idle series is a baseline. `options` has title, xLabel, yLabel, xLog (for
// wavenumbers), whole? (x are whole numbers), yLog, xName, range?, threshold?, height?, styles? (colour and dash of each
// series), about? (what the name of a saved file adds to the title); show() reads them again.
class Chart {
  constructor(host, options) {
    this.options = options;
    this.series = [];
    this.off = new Set();
    this.cursor = null;
    this.id = `clip-${Chart.count = (Chart.count || 0) + 1}`;
    this.box = element("div", { class: "chart" });
    const head = element("div", { class: "head" });
    this.heading = element("h3", {}, options.title);
    head.append(this.heading, this.makeSavers());
    this.plot = element("div", { class: "plot", tabindex: "0", role: "group" });
    this.legend = element("div", { class: "legend" });
    this.spoken = element("div", { class: "hidden", "aria-live": "polite" });
    this.box.append(head, this.plot, this.legend, this.spoken);
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
      const place = placeAfter(event.key, this.cursor === null ? -1 : this.cursor, this.places.length - 1);
      if (event.key === "Escape") this.read(null);
      else if (place !== undefined) this.read(place, true);
      else return;
      event.preventDefault();
    });
  }

  show(series) {
    const names = (list) => list.map(({ label }) => label).join("\n");
    const others = names(series) !== names(this.series);
    this.series = series;
    this.heading.textContent = this.options.title;
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
    const { idle } = this.series[i];
    if (idle) return { stroke: "var(--soft)", "stroke-width": 1.2, "stroke-dasharray": idle === 1 ? "5 4" : "1.5 3" };
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
      .filter((y) => y !== null && y !== undefined && (!yLog || y > 0));
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
    const width = this.plot.clientWidth;
    if (width < NARROWEST) return;  // hidden, or on its way to another place
    this.plot.replaceChildren(this.picture(width, 170));
    this.plot.setAttribute("aria-label", `${this.description()} Arrow keys read the values.`);
    this.read(this.cursor);
  }

  // The chart `width` pixels wide, with at most `room` of them for the names at the ends of the lines.
  picture(width, room) {
    const { options } = this;
    this.width = width;
    const height = options.height || Math.min(340, Math.max(220, width * 0.6));
    const shown = this.visible();
    const direct = width >= 480 && this.series.length > 1;
    const [low, high] = this.limits();
    const ticks = options.yLog ? logTicks(low, high) : linearTicks(low, high, 5);
    const longest = (texts) => Math.max(...texts.map(textWidth), 0);
    const left = Math.max(48, 30 + longest(ticks.map(tickText)));
    const names = longest(shown.map(({ label }) => label));
    const pad = { left, right: direct ? Math.min(room, 24 + names) : 12, top: 12, bottom: 38 };
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
    this.drawAxes(svg, ticks, first, last, width);
    const inside = shape("g", { "clip-path": `url(#${this.id})` });
    if (options.threshold !== undefined) this.drawThreshold(svg, inside, width);
    for (const one of shown) this.drawSeries(svg, inside, one);
    svg.append(inside);
    if (direct) this.drawLabels(svg, shown, width);
    this.line = shape("line", { class: "cursor", y1: pad.top, y2: height - pad.bottom, visibility: "hidden" });
    this.dots = shape("g");
    this.reading = shape("text", { class: "reading", y: pad.top + 10 });
    svg.append(this.line, this.dots, this.reading);
    return svg;
  }

  description() {
    const { title, yLabel, xLabel, yLog } = this.options;
    return `${title}. ${yLabel} against ${xLabel}, ${yLog ? "logarithmic" : "linear"}: ${
      this.visible().map(({ label }) => label).join(", ") || "nothing switched on"}.`;
  }

  drawAxes(svg, ticks, first, last, width) {
    const { across, up, pad, height, options } = this;
    const bottom = height - pad.bottom;
    for (const y of ticks) {
      svg.append(shape("line", { class: "grid", x1: pad.left, x2: width - pad.right, y1: up(y), y2: up(y) }));
      svg.append(shape("text", { class: "tick y", x: pad.left - 6, y: up(y) + 4, "text-anchor": "end" }, tickText(y)));
    }
    const waves = () => [...(first < 1 ? [0] : []), ...logTicks(Math.max(1, first), last)];
    for (const x of options.xLog ? waves() : linearTicks(first, last, width < 480 ? 4 : 7, options.whole ? 1 : 0)) {
      svg.append(shape("line", { class: "axis", x1: across(x), x2: across(x), y1: bottom, y2: bottom + 4 }));
      const middle = Math.min(across(x), width - textWidth(tickText(x)) / 2 - 1);  // the last one whole
      svg.append(shape("text", { class: "tick", x: middle, y: bottom + 17, "text-anchor": "middle" }, tickText(x)));
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
      if (one.y[k] === null || one.y[k] === undefined) { pen = "M"; return; }
      d += `${pen}${across(x).toFixed(1)} ${up(one.y[k]).toFixed(1)}`;
      pen = "L";
    });
    inside.append(shape("path", { d, fill: "none", "stroke-width": 2, class: one.idle ? "baseline" : "series", ...stroke }));
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
      const k = one.y.findLastIndex((y) => y !== null && y !== undefined);
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
      svg.append(shape("text", { x: x + 14, y: y + 4, class: "direct" }, shortened(one.label, pad.right - 20)));
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
    if (!this.line) return;  // not drawn yet
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
      if (y !== null && y !== undefined && (!this.options.yLog || y > 0)) {
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
  makeSavers() {
    const group = element("div", { class: "save" });
    for (const [kind, write] of [["SVG", () => this.toSvg()], ["CSV", () => this.toCsv()]]) {
      const said = `Save as ${kind}: ${this.options.title}`;
      const button = element("button", { type: "button", "aria-label": said, title: said }, kind);
      button.addEventListener("click", () => {
        const words = `${this.options.title} ${this.options.about || ""}`.toLowerCase();
        save(`${words.replace(/[^a-z0-9@.]+/g, "-").replace(/^-|-$/g, "")}.${kind.toLowerCase()}`, write());
      });
      group.append(button);
    }
    return group;
  }

  // The chart as it is shown, in light colours, with every style on its element.
  toSvg() {
    const root = document.documentElement;
    const { theme } = root.dataset;
    root.dataset.theme = "light";
    const svg = this.picture(SAVED_WIDTH, SAVED_WIDTH / 2);
    this.plot.replaceChildren(svg);
    for (const part of [this.line, this.dots, this.reading]) part.remove();
    for (const part of svg.querySelectorAll("*")) inlineStyle(part);
    root.dataset.theme = theme;
    this.draw();
    svg.setAttribute("width", SAVED_WIDTH);
    svg.setAttribute("font-family", "sans-serif");
    svg.prepend(shape("title", {}, svg.getAttribute("aria-label")), shape("rect", { width: "100%", height: "100%", fill: "#ffffff" }));
    return new XMLSerializer().serializeToString(svg);
  }

  // The numbers behind the lines that are switched on, unrounded: a column for each line and end of its band.
  toCsv() {
    const { options } = this;
    const columns = [[options.xLabel, (x) => x]];
    for (const { label, x, y, low, high, points } of this.visible()) {
      for (const [name, values] of [[label, y], [`${label}, low`, low], [`${label}, high`, high]]) {
        if (values) columns.push([name, (place) => values[x.indexOf(place)]]);
      }
      if (points && points.length) columns.push([`${label}, paper`, (place) => new Map(points).get(place)]);
    }
    const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const number = (y) => (y === null ? "inf" : y === undefined ? "" : String(y));
    const lines = this.places.map((place) => columns.map(([, value]) => number(value(place))));
    return [columns.map(([name]) => quoted(name)), ...lines].map((cells) => `${cells.join(",")}\n`).join("");
  }
}

// A name without its middle, where labels that begin alike differ least.
function shortened(text, width) {
  let [start, end] = [Math.ceil(text.length / 2), Math.floor(text.length / 2)];
  let short = text;
  while (textWidth(short) > width && start > 2) {
    if (start > end) start -= 1;
    else end -= 1;
    short = `${text.slice(0, start)}…${text.slice(text.length - end)}`;
  }
  return short;
}

// Colours by CSS variables, or in spaces that drawing programs do not know, become plain ones.
function plainColour(colour) {
  if (!colour.includes("(") || colour.startsWith("url(")) return colour;
  ruler.clearRect(0, 0, 1, 1);
  ruler.fillStyle = colour;
  ruler.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = ruler.getImageData(0, 0, 1, 1).data;
  return a ? `rgb(${r}, ${g}, ${b})` : "none";
}

function inlineStyle(part) {
  const style = getComputedStyle(part);
  for (const name of ["fill", "stroke"]) part.setAttribute(name, plainColour(style[name]));
  for (const name of ["stroke-width", "stroke-dasharray", "opacity", "font-size", "paint-order"]) {
    part.setAttribute(name, style.getPropertyValue(name));
  }
  part.removeAttribute("class");
}

function save(name, text) {
  const type = name.endsWith("svg") ? "image/svg+xml" : "text/csv";
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
