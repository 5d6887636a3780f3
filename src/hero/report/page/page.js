// The page: colours, tables, and its sections with charts.

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

function setUpCurves() {
  const host = byId("curve-panels");
  if (!host) return;
  const { panels } = data.curves;
  const channel = byId("curve-channel");
  const scale = byId("curve-scale");
  const channels = [...new Set(panels.flatMap((panel) => panel.channels))];
  fill(channel, channels.map((name) => name || "mean over all channels"));
  channel.parentElement.hidden = channels.length < 2;
  const charts = panels.map(({ charts: [first], styles }) => new Chart(host, { ...first, styles }));
  const show = () => {
    charts.forEach((chart, i) => {
      const { channels: own, charts: some, styles } = panels[i];
      const place = Math.max(0, own.indexOf(channels[channel.value]));
      const { series, ...options } = some[place];
      const about = `${options.yLabel} ${own[place]}`;
      chart.options = { ...options, styles, about, yLog: scale.getAttribute("aria-pressed") === "true" };
      chart.show(series);
    });
  };
  channel.addEventListener("change", show);
  scale.addEventListener("click", () => {
    scale.setAttribute("aria-pressed", String(scale.getAttribute("aria-pressed") !== "true"));
    show();
  });
  show();
}

function setUpTraining() {
  const choice = byId("training-run");
  if (!choice) return;
  fill(choice, data.training.map(({ label }) => label));
  const host = byId("training-charts");
  const show = () => {
    host.replaceChildren();
    const { label: about, charts } = data.training[choice.value];
    for (const { series, ...options } of charts) new Chart(host, { ...options, about, height: 210 }).show(series);
  };
  choice.addEventListener("change", show);
  show();
}

// A table that is wider than the screen says so, and has a shadow on the side where it goes on.
function setUpScrolling(region) {
  const frame = region.parentElement;
  const hint = element("p", { class: "note hint", hidden: "" }, "Scroll the table sideways for more columns →");
  frame.before(hint);
  const look = () => {
    const left = region.scrollWidth - region.clientWidth - region.scrollLeft;
    hint.hidden = region.scrollWidth <= region.clientWidth + 1;
    frame.classList.toggle("more", left > 1);
    frame.classList.toggle("moved", region.scrollLeft > 1);
  };
  region.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(region);
}

setUpTheme();
document.querySelectorAll("table.sortable").forEach(setUpSorting);
document.querySelectorAll(".scroll").forEach(setUpScrolling);
setUpCurves();
if (byId("player-run")) new Player();
setUpTraining();
