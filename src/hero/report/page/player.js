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

// One run, or two of the same test trajectory side by side, with the truth.
class Player {
  constructor() {
    const { runs, colours: tables } = data.players;
    this.runs = runs;
    this.field = colours(tables.field);
    this.error = colours(tables.error);
    this.timer = null;
    this.choice = byId("player-run");
    this.other = byId("player-other");
    this.slider = byId("player-slider");
    this.play = byId("player-play");
    this.speed = byId("player-speed");
    this.grid = byId("player-fields");
    fill(this.choice, runs.map(({ label }) => label));
    const charts = byId("player-charts");
    const lines = { height: 230, styles: [[6, 0], [1, 1], [0, 2]] };
    this.profile = new Chart(charts, { title: "The current step", xLabel: "x", yLabel: "u", xName: "x =", ...lines });
    const spectrum = { title: "Spectrum", xLabel: "wavenumber |k|", yLabel: "mean power per mode", xName: "k =" };
    this.spectrum = new Chart(charts, { ...spectrum, xLog: true, yLog: true, ...lines });
    const along = { title: "Error of this rollout", xLabel: "rollout step", xName: "step", yLabel: "nRMSE", yLog: true };
    this.errors = new Chart(charts, { ...along, ...lines, styles: lines.styles.slice(1) });
    this.choice.addEventListener("change", () => this.choose());
    this.other.addEventListener("change", () => this.choose());
    this.slider.addEventListener("input", () => this.show());
    this.play.addEventListener("click", () => this.toggle());
    this.speed.addEventListener("change", () => { if (this.timer !== null) { this.stop(); this.start(); } });
    this.grid.addEventListener("keydown", (event) => this.press(event));
    this.choose();
  }

  // The runs that show the same trajectory as the chosen one can stand next to it.
  offerOthers(run) {
    const kept = this.other.value;
    const same = this.runs.map((one, i) => [one, i]).filter(([one]) => one !== run && one.truth === run.truth);
    const none = same.length ? "no other run" : "no other run of this trajectory";
    this.other.replaceChildren(element("option", { value: "" }, none), ...same.map(([one, i]) => element("option", { value: i }, one.label)));
    this.other.value = same.some(([, i]) => String(i) === kept) ? kept : "";
    this.other.disabled = !same.length;
  }

  choose() {
    this.stop();
    const run = this.run = this.runs[this.choice.value];
    const before = this.shown ? this.shown[0].truth : null;
    this.offerOthers(run);
    this.shown = this.other.value === "" ? [run] : [run, this.runs[this.other.value]];
    const pair = this.shown.length > 1;
    const told = pair && this.shown[0].name === this.shown[1].name ? "label" : "name";
    this.names = pair ? this.shown.map((one) => one[told]) : ["prediction"];
    const truth = data.players.truths[run.truth];
    this.fields = [truth.field, ...this.shown.map(({ fields }) => fields[0])].map(bytes);
    this.powers = [truth.spectrum, ...this.shown.map(({ spectrum }) => spectrum)].map((text) => new Float32Array(bytes(text).buffer));
    this.slider.max = run.steps.length - 1;
    if (before !== run.truth) this.slider.value = 0;
    this.makeMaps(pair);
    this.profile.box.hidden = run.shape.length !== 1;
    this.profile.options.yLabel = run.unit;
    this.profile.options.range = [-1.1 * run.limits[0], 1.1 * run.limits[0]];
    this.spectrum.options.range = run.power_range;
    for (const chart of [this.profile, this.spectrum, this.errors]) chart.options.about = this.shown.map(({ label }) => label).join(" ");
    this.showErrors(pair);
    byId("player-notes").textContent = [...new Set(this.shown.flatMap(({ notes }) => notes))].join(" ");
    this.show();
  }

  // Truth, predictions and errors; two errors share the larger limit, so that their colours can be compared.
  makeMaps(pair) {
    const [unit, limit] = [this.run.unit, this.run.limits[0]];
    const largest = Math.max(...this.shown.map(({ limits }) => limits[1]));
    const rescaled = (own) => this.error.map((_, level) => this.error[level && Math.round(128 + ((level - 128) * own) / largest)]);
    this.maps = [
      { name: "truth", field: this.fields[0], table: this.field, bar: this.field, limit, unit },
      ...this.names.map((name, i) => ({ name, field: this.fields[i + 1], table: this.field, bar: this.field, limit, unit })),
      ...this.shown.map(({ fields, limits }, i) => ({
        name: pair ? `${this.names[i]} − truth` : "error (prediction − truth)",
        field: bytes(fields[1]), table: rescaled(limits[1]), bar: this.error, limit: largest, unit: "",
      })),
    ].map((map) => this.makeMap(map));
    this.grid.classList.toggle("pair", pair);
    this.grid.replaceChildren(...this.maps.map(({ figure }) => figure));
  }

  makeMap(map) {
    const figure = element("figure");
    const canvas = element("canvas", { class: this.run.shape.length === 1 ? "map flat" : "map", role: "img" });
    const bar = element("canvas", { class: "bar", "aria-hidden": "true" });
    const ends = element("div", { class: "ends" });
    const limit = formatNumber(map.limit);
    ends.append(...[`−${limit}`, map.unit, limit].map((text) => element("span", {}, text)));
    figure.append(element("figcaption", {}, map.name), canvas, bar, ends);
    paint(bar, 255, 1, map.bar, (column) => column + 1);
    return { ...map, figure, canvas };
  }

  showErrors(pair) {
    const known = this.shown.map(({ nrmse, steps }, i) => ({ label: this.names[i], x: steps, y: nrmse })).filter(({ y }) => y);
    const { box } = this.errors;
    if (pair) this.maps[2].figure.after(box);  // the free place of the grid, below the truth
    else byId("player-charts").append(box);
    box.hidden = !known.length;
    this.errors.show(known);
  }

  show() {
    const { run } = this;
    const frame = Number(this.slider.value);
    const step = run.steps[frame];
    const errors = this.shown.flatMap(({ nrmse }, i) => (nrmse ? [`${this.shown.length > 1 ? `${this.names[i]} ` : ""}${formatNumber(nrmse[frame])}`] : []));
    const error = errors.length ? `, nRMSE ${errors.join(", ")}` : "";
    const text = `step ${step} of ${run.length} (t = ${Number((step * run.dt).toPrecision(4))})${error}`;
    byId("player-step").textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    if (run.shape.length === 1) this.showSpaceTime(frame);
    else this.showField(frame);
    const waves = this.powers[0].length / run.steps.length;
    const place = Array.from({ length: waves }, (_, k) => k + 1);
    this.spectrum.show(["truth", ...this.names].map((label, i) => ({
      label, x: place, y: [...this.powers[i].subarray(frame * waves, (frame + 1) * waves)].map((p) => (Number.isFinite(p) ? 10 ** p : null)),
    })));
    if (!this.errors.box.hidden) this.errors.read(frame);
    this.maps.forEach(({ canvas, name }) => canvas.setAttribute("aria-label", `${name}, ${run.label}, ${text}`));
  }

  showSpaceTime(frame) {
    const { run } = this;
    const [points] = run.shape;
    for (const { canvas, field, table } of this.maps) {
      paint(canvas, run.steps.length, points, table, (column, row) => field[column * points + row]);
      const context = canvas.getContext("2d");
      context.fillStyle = "#000000";
      context.fillRect(frame, 0, 1, points);
    }
    const x = Array.from({ length: points }, (_, k) => Number(((k * run.extent) / points).toPrecision(4)));
    this.profile.show(["truth", ...this.names].map((label, i) => ({
      label, x, y: x.map((_, k) => {
        const level = this.fields[i][frame * points + k];
        return level ? ((level - 128) / 127) * run.limits[0] : null;
      }),
    })));
  }

  showField(frame) {
    const [across, up] = this.run.shape;
    const start = frame * across * up;
    for (const { canvas, field, table } of this.maps) paint(canvas, across, up, table, (column, row) => field[start + column * up + row]);
  }

  // Keys on the fields: space plays and pauses, the others move in time as on the slider.
  press(event) {
    if (event.target !== this.grid) return;
    const place = placeAfter(event.key, Number(this.slider.value), Number(this.slider.max));
    if (event.key === " ") this.toggle();
    else if (place !== undefined) { this.slider.value = place; this.show(); }
    else return;
    event.preventDefault();
  }

  toggle() {
    if (this.timer === null) this.start();
    else this.stop();
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
