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
    this.tables = Object.fromEntries(Object.entries(tables).map(([name, table]) => [name, colours(table)]));
    this.timer = null;
    this.choice = byId("player-run");
    this.other = byId("player-other");
    this.channel = byId("player-channel");
    this.slider = byId("player-slider");
    this.play = byId("player-play");
    this.speed = byId("player-speed");
    this.grid = byId("player-fields");
    fill(this.choice, runs.map(({ label }) => label));
    const charts = byId("player-charts");
    const lines = { height: 230, styles: [[6, 0], [1, 1], [0, 2]] };
    this.profile = new Chart(charts, { title: "The current step", ...lines });
    const spectrum = { title: "Spectrum", xLabel: "wavenumber |k|", yLabel: "mean power per mode", xName: "k =" };
    this.spectrum = new Chart(charts, { ...spectrum, xLog: true, yLog: true, ...lines });
    const along = { title: "Error of this rollout", xLabel: "rollout step", xName: "step", whole: true, yLog: true };
    this.errors = new Chart(charts, { ...along, ...lines, styles: lines.styles.slice(1) });
    this.choice.addEventListener("change", () => this.choose());
    this.other.addEventListener("change", () => this.choose());
    this.channel.addEventListener("change", () => this.choose());
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

  // The channels of a run; the one that was shown stays if the run has it.
  offerChannels(run) {
    const kept = this.channel.selectedOptions.length ? this.channel.selectedOptions[0].textContent : "";
    const names = run.channels.map(({ title }) => title);
    this.channel.replaceChildren(...names.map((name, i) => element("option", { value: i }, name)));
    this.channel.value = Math.max(0, names.indexOf(kept));
    this.channel.parentElement.hidden = names.length < 2;
  }

  choose() {
    this.stop();
    const run = this.run = this.runs[this.choice.value];
    const before = this.shown ? this.shown[0].truth : null;
    this.offerOthers(run);
    this.offerChannels(run);
    this.shown = this.other.value === "" ? [run] : [run, this.runs[this.other.value]];
    const pair = this.shown.length > 1;
    const told = pair && this.shown[0].name === this.shown[1].name ? "label" : "name";
    this.names = pair ? this.shown.map((one) => one[told]) : ["prediction"];
    const chosen = Number(this.channel.value);
    const truth = data.players.truths[run.truth][chosen];
    this.parts = this.shown.map(({ channels }) => channels[chosen]);
    this.fields = [truth.field, ...this.parts.map(({ fields }) => fields[0])].map(bytes);
    this.powers = [truth.spectrum, ...this.parts.map(({ spectrum }) => spectrum)].map((text) => new Float32Array(bytes(text).buffer));
    this.slider.max = run.steps.length - 1;
    if (before !== run.truth) this.slider.value = 0;
    this.makeMaps(pair);
    this.nameCharts();
    this.showErrors(pair);
    byId("player-notes").textContent = [...new Set([...this.shown, ...this.parts].flatMap(({ notes }) => notes))].join(" ");
    this.show();
  }

  // Titles and axes of the charts, by the channel; its name stands above the fields where there are several.
  nameCharts() {
    const { run, shown } = this;
    const { name, title, label, ends: [low, high], power_range: range } = this.parts[0];
    const several = run.channels.length > 1;
    const room = (high - low) * 0.06;
    byId("player-title").textContent = several ? title : "";
    this.profile.box.hidden = run.shape.length !== 1;
    Object.assign(this.profile.options, { xLabel: run.sides[0].label, xName: `${run.sides[0].name} =`, yLabel: label, range: [low - room, high + room] });
    Object.assign(this.spectrum.options, { title: several ? `Spectrum of ${name}` : "Spectrum", range });
    Object.assign(this.errors.options, { title: several ? `Error of ${name} in this rollout` : "Error of this rollout", yLabel: run.measure });
    const about = [...shown.map((one) => one.label), ...(several ? [name] : [])].join(" ");
    for (const chart of [this.profile, this.spectrum, this.errors]) chart.options.about = about;
  }

  // Truth, predictions and errors; two errors share the larger limit, so that their colours can be compared.
  makeMaps(pair) {
    const { label: unit, ends, colours: kind } = this.parts[0];
    const { error, [kind]: table } = this.tables;
    const largest = Math.max(...this.parts.map(({ error_limit: limit }) => limit));
    const rescaled = (own) => error.map((_, level) => error[level && Math.round(128 + ((level - 128) * own) / largest)]);
    this.maps = [
      ...["truth", ...this.names].map((name, i) => ({ name, field: this.fields[i], table, bar: table, ends, unit })),
      ...this.parts.map(({ fields, error_limit: limit, error_label: difference }, i) => ({
        name: pair ? `${this.names[i]} − truth` : "error",
        field: bytes(fields[1]), table: rescaled(limit), bar: error, ends: [-largest, largest], unit: difference,
      })),
    ].map((map) => this.makeMap(map));
    this.grid.classList.toggle("pair", pair);
    this.grid.classList.toggle("wide", this.run.shape.length > 1 && this.run.ratio > 1.5);
    this.grid.replaceChildren(...this.maps.map(({ figure }) => figure));
  }

  makeMap(map) {
    const { sides, ratio, length, shape } = this.run;
    const figure = element("figure");
    const frame = element("div", { class: "picture" });
    const canvas = element("canvas", { class: "map", role: "img" });
    const bar = element("canvas", { class: "bar", "aria-hidden": "true" });
    const steps = { label: "rollout step", ends: [1, length] };
    const [across, up] = shape.length === 1 ? [steps, sides[0]] : sides;
    canvas.style.aspectRatio = shape.length === 1 ? 4 / 3 : ratio;
    frame.append(this.scale("up", [...up.ends].reverse(), up.label), canvas, this.scale("across", across.ends, across.label));
    figure.append(element("figcaption", {}, map.name), frame, bar, this.scale("ends", map.ends, map.unit));
    paint(bar, 255, 1, map.bar, (column) => column + 1);
    return { ...map, figure, canvas };
  }

  // The ends of an axis and its label between them.
  scale(name, [first, last], label) {
    const made = element("div", { class: name });
    made.append(...[formatEnd(first), label, formatEnd(last)].map((text) => element("span", {}, text)));
    return made;
  }

  showErrors(pair) {
    const known = this.parts.map(({ errors }, i) => ({ label: this.names[i], x: this.run.steps, y: errors })).filter(({ y }) => y);
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
    const errors = this.parts.flatMap((one, i) => (one.errors ? [`${this.parts.length > 1 ? `${this.names[i]} ` : ""}${formatNumber(one.errors[frame])}`] : []));
    const error = errors.length ? `, ${run.measure} ${errors.join(", ")}` : "";
    const text = `step ${step} of ${run.length} (t = ${run.times[frame]})${error}`;
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
    const channel = run.channels.length > 1 ? `${this.parts[0].title}, ` : "";
    this.maps.forEach(({ canvas, name }) => canvas.setAttribute("aria-label", `${name}, ${channel}${run.label}, ${text}`));
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
    const { points: x } = run.sides[0];
    const [low, high] = this.parts[0].ends;
    this.profile.show(["truth", ...this.names].map((label, i) => ({
      label, x, y: x.map((_, k) => {
        const level = this.fields[i][frame * points + k];
        if (!this.fields[0][frame * points + k]) return undefined;  // masked
        return level ? low + ((level - 1) / 254) * (high - low) : null;
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
