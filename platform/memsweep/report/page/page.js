// The page of a report: draws the figure of the answer, opens evidence, sorts and filters tables.
// Without it the page still has its answer, a picture of it, and every table.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  let data, findings; // of the page that is shown; a live page is exchanged for a newer one
  const TONES = {
    stable: "var(--stable)", unstable: "var(--unstable)", inconclusive: "var(--open)",
    agrees: "var(--stable)", disagrees: "var(--unstable)", undecided: "var(--open)",
  };
  const MARKS = { stable: "circle", unstable: "triangle", inconclusive: "diamond2" };
  const SIGNS = { stable: "●", unstable: "▲", inconclusive: "◇" };
  const HUES = ["#d55e00", "#0072b2", "#009e73", "#b5539b", "#8c6d00", "#56b4e9", "#7a7f87"];

  // --- words and elements

  const value = (v) => (v === "inf" ? Infinity : v === "-inf" ? -Infinity : v === null || v === undefined ? NaN : v);

  /** A number of few significant digits, as the tables write it. */
  function num(v, digits = 3) {
    const x = value(v);
    if (Number.isNaN(x)) return "–";
    if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
    if (x === 0) return "0";
    const size = Math.abs(x);
    const text = size < 1e-4 || size >= 1e6
      ? x.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e")
      : String(Number(x.toPrecision(digits)));
    return text.replaceAll("-", "−");
  }
  const share = (v) => `${num(100 * v)} %`;
  const short = (text, most = 22) => (text.length <= most ? text : `…${text.slice(1 - most)}`);
  const distinct = (values) => [...new Set(values)];
  const numbers = (values) => distinct(values).sort((a, b) => a - b);

  /** The parts of a text, its exponents raised, as the page writes them. */
  const powers = (text) => text.split(/(?<=\S)\^(\([^()]*\)|[−–+-]?[\w.]*)/).map((part, i) => (i % 2 ? make("sup", {}, part.replace(/^\((.*)\)$/, "$1")) : part));

  /** An element; children are elements or text, and text is never markup. */
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, v] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), v);
      else if (v !== false && v !== null && v !== undefined) element.setAttribute(name, v === true ? "" : v);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
  }
  function tableOf(title, headings, rows) {
    const cells = (row) => row.map((cell, i) =>
      make(i ? "td" : "th", { "data-label": headings[i], scope: i ? null : "row", class: "nowrap" }, cell));
    return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title },
      make("table", { class: "data" }, make("caption", {}, title),
        make("thead", {}, make("tr", {}, headings.map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, rows.map((row) => make("tr", {}, cells(row))))));
  }
  function copyButton(text, label = "copy") {
    const button = make("button", { class: "copy", type: "button", "aria-label": `${label}: ${text}` }, label);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
      } catch { // a page that was opened as a file may lack the clipboard
        const box = document.body.appendChild(make("textarea", {}, text));
        box.select();
        document.execCommand("copy");
        box.remove();
      }
      button.textContent = "copied";
    });
    return button;
  }
  function chooser(label, options, chosen, change) {
    const select = make("select", { onchange: (event) => change(event.target.value) },
      options.map(([v, text]) => make("option", { value: v, selected: String(v) === String(chosen) }, text)));
    return make("label", {}, `${label} `, select);
  }

  // --- scales and plots

  /** Round ticks of a logarithmic axis: 1, 2, 5 where it spans little, else decades alone. */
  function logTicks([low, high]) {
    const decades = Math.log10(high / low);
    const steps = decades > 3.2 ? [1] : decades > 1.9 ? [1, 3] : [1, 2, 5]; // d3 leaves out the labels of more
    const ticks = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e += decades > 9 ? 2 : 1)
      for (const step of steps) ticks.push(Number((step * 10 ** e).toPrecision(3)));
    return ticks.filter((tick) => tick >= low && tick <= high);
  }
  /** An axis of a chart, as the chart says. */
  function axisOf(chart, axis, label) {
    const domain = chart.limits[axis], places = axis === "x" ? chart.ticks : null;
    if ((chart.whole ?? "").includes(axis)) return { domain, label, ticks: d3.ticks(...domain, 5).filter(Number.isInteger), tickFormat: "d" };
    if (!chart.log.includes(axis)) return { domain, label, ticks: 5 };
    return { type: "log", domain, label, ...(places ? { axis: null } : { ticks: logTicks(domain), tickFormat: (v) => num(v) }) };
  }
  /** Labels at the places that were measured: a logarithmic axis of its own would leave most of them out. */
  function placesOf(chart, most) {
    if (!chart.ticks || !chart.log.includes("x")) return [];
    const few = chart.ticks.filter((_, i) => i % Math.ceil(chart.ticks.length / most) === 0);
    return [Plot.axisX(few, { label: `${chart.x} →`, text: (v) => num(v) })];
  }
  /** Heights of labels at the ends of lines, moved apart where they would cover each other. */
  function apart(ends, [low, high], height, log) {
    const place = (y) => (log ? Math.log(y / low) / Math.log(high / low) : (y - low) / (high - low)) * height;
    const back = (p) => (log ? low * (high / low) ** (p / height) : low + (p / height) * (high - low));
    let floor = -Infinity;
    return [...ends].sort((a, b) => a.y - b.y).map((end) => {
      const at = Math.max(place(end.y), floor);
      floor = at + 15;
      return { ...end, label: back(at) };
    });
  }
  function show(target, options, alt) {
    const chart = Plot.plot({ style: { background: "transparent", fontSize: "12.5px", fontFamily: "inherit" }, ...options });
    chart.querySelectorAll("[aria-label]").forEach((part) => part.removeAttribute("aria-label")); // names of marks, not of what they show
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", alt);
    target.replaceChildren(chart);
    return chart;
  }
  const wide = () => Math.max(300, Math.min(byId("chart")?.clientWidth || 760, 860));

  // --- charts: every one is a value that says its data, axes, guide lines and words (memsweep.report.values.chart)

  /** Colours of names; the line that others are to reach is grey, and a line without a name stands alone. */
  const hueOf = (names) => (name) => (name === "target" ? "var(--muted)" : name === "" ? "var(--link)" : HUES[names.indexOf(name) % HUES.length]);
  const roleHue = (name) => (name.startsWith("the winner") ? "#d55e00" : name.startsWith("stopped") ? "#9aa3ad" : "#0072b2");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  /** From pale to dark, on a dark page the other way round: the last ones stand out on both. */
  const shadeOf = (names) => (name) => {
    const place = names.indexOf(name) / Math.max(1, names.length - 1);
    return d3.interpolateViridis(dark.matches ? 0.35 + 0.6 * place : 0.82 * (1 - place));
  };
  const namesOf = (charts) => distinct(charts.flatMap((chart) =>
    ["lines", "dots", "rings", "lost", "beyond", "seeds"].flatMap((part) => (chart[part] ?? []).map(([name]) => name))));
  /** Colours of names, alike in all charts that stand together. */
  function huesOf(charts) {
    const names = namesOf(charts), looks = distinct(charts.map((chart) => chart.look));
    if (looks.length === 1 && looks[0] === "roles") return roleHue;
    const tones = distinct(charts.flatMap((chart) => Object.values(chart.tones ?? {}))); // where all agree, a colour of each line says more
    if (looks.length === 1 && looks[0] === "verdicts" && tones.length > 1) return (name, chart) => TONES[chart.tones[name]];
    return looks.length === 1 && looks[0] === "ordered" ? shadeOf(names) : hueOf(names);
  }
  const within = ({ low, high }) => (num(low) === num(high) ? "" : ` [${num(low)}, ${num(high)}]`);

  /** Draws a chart; how: width, height, hue, and whether names stand at the ends of lines. A click gives open a point. */
  function draw(target, chart, how, open) {
    const svg = ({ rows: rowsChart, cells: cellsChart, parallel: parallelChart }[chart.kind] ?? curvesChart)(target, chart, how);
    if (!open) return;
    svg.style.cursor = "pointer";
    svg.addEventListener("click", () => svg.value && open(svg.value, chart));
  }
  function pointsOf(chart, part) {
    const fits = (v, axis) => Number.isFinite(v) && (v > 0 || !chart.log.includes(axis));
    return (chart[part] ?? []).flatMap(([name, points]) => points.map(([x, y, low, high, trial, words]) => ({
      name, x: value(x), y: value(y), low: part === "beyond" ? low : value(low ?? y), high: value(high ?? y), trial, words })))
      .filter((p) => fits(p.x, "x") && fits(p.y, "y"));
  }
  function curvesChart(target, chart, { width, height, hue: hueBy, ends: named, chosen }) {
    const [lines, dots, rings, beyond] = ["lines", "dots", "rings", "beyond"].map((part) => pointsOf(chart, part));
    const [bottom, top] = chart.limits.y, roles = chart.look === "roles", log = chart.log.includes("y");
    const clip = (v, other) => (Number.isNaN(v) ? other : Math.min(Math.max(v, bottom), top));
    const hue = (p) => hueBy(p.name ?? p, chart), strong = (p) => (chosen && p.name !== chosen ? 0.22 : 1);
    const seeds = (chart.seeds ?? []).flatMap(([name, points]) => points.map(([x, y, valid]) => ({ name, x, y: value(y), valid })));
    const lost = (chart.lost ?? []).flatMap(([name, points]) => points.map(([x, words]) => ({ name, x, words })));
    const guides = (chart.guides ?? []).map(([name, [[x1, y1], [x2, y2]], words]) => ({ name, x1, y1, x2, y2, words }));
    const names = distinct([...lines, ...dots].map((p) => p.name)).filter(Boolean), small = width < 500;
    const symbol = (p) => (chart.tones ? MARKS[chart.tones[p.name]] : "circle");
    const last = names.map((name) => [...lines, ...dots].filter((p) => p.name === name).reduce((a, b) => (b.x >= a.x ? b : a)));
    // A name that does not fit beside its line stands whole in the legend below.
    const most = small ? 14 : 24, fit = names.length === 1 || names.every((name) => name.length <= most);
    const beside = named && names.length > 0 && names.length <= 8 && fit, room = 20 + 7.2 * d3.max([0, ...names.map((name) => short(name, most).length)]);
    // Marks with bars of few places stand beside each other; what they stand for is at the same place.
    const aside = (i, n) => (chart.ticks && n > 1 ? 3 * (i - (n - 1) / 2) : 0);
    const barred = dots.filter((p) => p.high > p.low), plain = dots.filter((p) => !(p.high > p.low)), sorts = distinct(barred.map((p) => p.name));
    const all = [...lines, ...dots, ...rings];
    const far = beyond.map((p) => ({ ...p, up: p.low === "above" }));
    const svg = show(target, {
      width, height, marginLeft: 56, marginTop: 26, marginRight: beside ? Math.max(small ? 76 : 110, room) : 16, marginBottom: 40, clip: false,
      x: axisOf(chart, "x", `${chart.x} →`), y: axisOf(chart, "y", `↑ ${chart.y}`), symbol: { type: "identity" },
      marks: [
        ...placesOf(chart, small ? 4 : 6),
        Plot.gridY({ strokeOpacity: 0.12, ...(log ? { ticks: logTicks(chart.limits.y) } : { ticks: 5 }) }),
        Plot.ruleY(chart.levels ?? [], { y: (l) => l[0], stroke: "var(--muted)", strokeDasharray: "3,3" }),
        Plot.text(chart.levels ?? [], { y: (l) => l[0], text: (l) => l[1], frameAnchor: "left", dy: -6, dx: 3, textAnchor: "start", fill: "var(--muted)", fontSize: 11 }),
        Plot.link(guides, { x1: "x1", y1: "y1", x2: "x2", y2: "y2", clip: true, strokeDasharray: "3,3", stroke: (g) => (g.name ? hue(g) : "var(--muted)"), strokeOpacity: (g) => (g.name ? 0.7 * strong(g) : 1) }),
        Plot.text(guides.filter((g) => !g.name), { x: "x1", y: "y1", text: (g) => (small ? g.words.split(":")[0] : g.words), textAnchor: "start", dy: -7, fill: "var(--muted)", fontSize: 11.5 }),
        Plot.areaY(lines.filter((p) => !roles && p.high > p.low), { x: "x", y1: (p) => clip(p.low, bottom), y2: (p) => clip(p.high, top), z: "name", fill: hue, fillOpacity: (p) => 0.13 * strong(p), clip: true }),
        Plot.dot(seeds, { x: "x", y: "y", r: (p) => (p.valid ? 1.8 : 2.4), fill: (p) => (p.valid ? hue(p) : "none"), stroke: hue, strokeWidth: 0.9, opacity: (p) => (p.valid ? 0.45 : 0.8) * strong(p), clip: true }),
        Plot.line(lines, { x: "x", y: "y", z: "name", stroke: (p) => (p.name === "target" ? "var(--muted)" : hue(p)), clip: true,
          strokeWidth: (p) => (p.name === "target" ? 5 : roles && !p.name.startsWith("the winner") ? 0.9 : 2), strokeOpacity: (p) => (p.name === "target" ? 0.45 : strong(p)) }),
        ...(lines.length <= 16 * names.length && !roles ? [Plot.dot(lines, { x: "x", y: "y", r: chart.tones ? 4.5 : 3, symbol, clip: true,
          fill: (p) => (beyond.some((b) => b.name === p.name && b.x === p.x) ? "var(--paper)" : hue(p)), stroke: hue, fillOpacity: strong, strokeOpacity: strong })] : []),
        ...sorts.flatMap((name, i) => [
          Plot.ruleX(barred.filter((p) => p.name === name), { x: "x", y1: (p) => clip(p.low, bottom), y2: (p) => clip(p.high, top), dx: aside(i, sorts.length), stroke: hue, strokeWidth: 1.4 }),
          Plot.dot(barred.filter((p) => p.name === name), { x: "x", y: "y", dx: aside(i, sorts.length), r: 3.6, fill: "var(--paper)", stroke: hue, strokeWidth: 1.4 })]),
        Plot.dot(plain, { x: "x", y: "y", r: 3, fill: hue, stroke: hue, fillOpacity: 0.5, clip: true }),
        Plot.dot(rings, { x: "x", y: "y", r: 8, stroke: hue, strokeWidth: 2.5 }),
        ...[true, false].map((up) => Plot.text(far.filter((p) => p.up === up), { x: "x", y: "y", text: () => (up ? "↑" : "↓"), dy: up ? -13 : 13, fill: hue })),
        Plot.dot(lost, { x: "x", y: top, symbol: "times", stroke: hue, r: 4.5 }),
        Plot.text(lost, { x: "x", y: top, text: "words", dx: 8, textAnchor: "start", fontSize: 10, fill: hue }),
        ...(beside ? [Plot.text(apart(last, chart.limits.y, height - 70, log), { x: "x", y: "label", text: (p) => short(p.name, most), dx: 9, textAnchor: "start", fontWeight: 600, fill: hue, fillOpacity: strong })] : []),
        Plot.tip(all, Plot.pointer({ x: "x", y: (p) => clip(p.y), title: (p) => [p.name && (chart.tones ? `${p.name}: ${SIGNS[chart.tones[p.name]]} ${chart.tones[p.name]}` : p.name),
          `${chart.x} ${num(p.x)}`, `${chart.y} ${num(p.y)}${within(p)}`, chart.keys?.[p.name] && `${chart.keys_title} ${chart.keys[p.name]}`, p.words].filter(Boolean).join("\n") })),
      ],
    }, chart.words);
    if (names.length > 1 && !beside && !roles)
      target.append(make("p", { class: "keys" }, names.map((name) => [make("i", { style: `background:${hueBy(name, chart)}` }), `${name} `]).flat()));
    return svg;
  }
  /** Rows one below the other: their values, their middle, their interval. */
  function rowsChart(target, chart, { width }) {
    const rows = chart.rows.map((row) => ({ ...row, x: value(row.middle), from: value(row.low), to: value(row.high) }));
    const tone = (row) => TONES[row.tone] ?? "var(--link)", [low, high] = chart.limits.x, fits = (v) => Number.isFinite(v) && (v > 0 || !chart.log);
    const clip = (v, other) => Math.min(Math.max(Number.isNaN(v) ? other : v, low), high);
    const points = rows.flatMap((row) => (row.values ?? []).map((v, seed) => ({ ...row, x: value(v), seed }))).filter((p) => fits(p.x));
    const middles = rows.filter((row) => fits(row.x)), letters = Math.floor((width - 40) / 7.9);
    const lines = (row) => [row.words, row.name].filter(Boolean).join(": ").split(" ").reduce((found, word) => (found.length && found.at(-1).length + word.length < letters ? [...found.slice(0, -1), `${found.at(-1)} ${word}`] : [...found, word]), []);
    const text = (row) => lines(row).join("\n"), under = rows.some((row) => row.words), most = under ? d3.max(rows, (row) => lines(row).length) : 1;
    const part = (row) => (chart.log ? Math.log(row.x / low) / Math.log(high / low) : (row.x - low) / (high - low));
    const anchor = (row) => (part(row) < 0.3 ? "start" : part(row) > 0.7 ? "end" : "middle");
    return show(target, {
      width, height: 70 + (under ? 38 + 14 * most : 46) * rows.length, marginTop: 20 + 14 * most, marginRight: under ? 24 : 70, marginBottom: 40,
      marginLeft: under ? 14 : Math.min(260, 20 + 7.2 * d3.max(rows, (row) => short(row.name, 34).length)),
      x: { ...axisOf(chart, "x", `${chart.x} →`), ...(chart.log ? {} : { grid: true }) },
      y: { domain: rows.map((row) => row.name), label: null, tickSize: 0, ...(under ? { axis: null } : { tickFormat: (name) => short(name, 34) }) },
      symbol: { type: "identity" },
      marks: [
        Plot.ruleX(chart.levels ?? [], { x: (l) => l[0], stroke: "var(--muted)", strokeDasharray: (chart.levels ?? []).length > 1 ? "3,3" : null }),
        Plot.ruleY(rows, { y: "name", stroke: "currentColor", strokeOpacity: 0.12 }),
        Plot.ruleY(rows.filter((row) => row.low !== undefined), { y: "name", x1: (row) => clip(row.from, low), x2: (row) => clip(row.to, high), stroke: tone, strokeWidth: 3 }),
        Plot.dot(points, { x: "x", y: "name", r: 3.6, fill: tone, fillOpacity: 0.65 }),
        Plot.tickX(middles.filter((row) => row.values), { x: "x", y: "name", stroke: "var(--ink)", strokeWidth: 2.5, inset: 10 }),
        Plot.dot(middles.filter((row) => !row.values), { x: "x", y: "name", r: 5, fill: tone, symbol: (row) => MARKS[row.tone] ?? "circle" }),
        ...["start", "middle", "end"].map((textAnchor) => Plot.text(middles.filter((row) => row.text && anchor(row) === textAnchor), { x: "x", y: "name", text: "text", dy: -18, fontWeight: 600, textAnchor })),
        ...(under ? [Plot.text(rows, { y: "name", frameAnchor: "left", text, dy: -10, lineAnchor: "bottom", textAnchor: "start", fill: tone, stroke: "var(--paper)", strokeWidth: 4, fontWeight: 600 })] : []),
        Plot.tip(points.length ? points : middles, Plot.pointer({ x: "x", y: "name", title: (p) => `${p.name}\n${p.seed === undefined ? `${num(p.x)} [${num(p.from)}, ${num(p.to)}]` : `seed ${p.seed}: ${num(p.x, 4)}`}` })),
      ],
    }, chart.words);
  }
  /** A shade for each row and column, with its number in it. */
  function cellsChart(target, chart, { width }) {
    const names = chart.rows.map((row) => row.name);
    const cells = chart.rows.flatMap((row) => row.cells.map((cell, i) => cell && { name: row.name, column: chart.columns[i],
      seen: Math.max(0, Math.min(1, cell[0])), text: cell[1], trial: cell[2], words: cell[3] })).filter(Boolean);
    return show(target, {
      width, height: 130 + 26 * names.length, marginTop: 6, marginRight: 10, marginBottom: 96,
      marginLeft: Math.min(190, 20 + 7 * d3.max(names, (name) => short(name, 24).length)),
      x: { domain: chart.columns, label: null, tickRotate: -40, tickFormat: (name) => short(name, 18), tickSize: 0 },
      y: { domain: names, label: null, tickFormat: (name) => short(name, 24), tickSize: 0 },
      color: { type: "linear", domain: [0, 1], range: ["#eef3f8", "#0b4f8a"] },
      marks: [
        Plot.cell(cells, { x: "column", y: "name", fill: "seen", inset: 1 }),
        Plot.text(cells, { x: "column", y: "name", text: "text", fill: (c) => (c.seen > 0.5 ? "#ffffff" : "#1c2530") }),
        Plot.tip(cells, Plot.pointer({ x: "column", y: "name", title: (c) => `${c.name} on ${c.column}\n${c.words}` })),
      ],
    }, chart.words);
  }
  /** A line for each suggestion across axes that stand side by side, the good ones dark and on top. */
  function parallelChart(target, chart, { width, height }) {
    const names = chart.axes.map(([name]) => short(name, 18)), hue = dark.matches ? (t) => d3.interpolateBlues(1 - 0.75 * t) : (t) => d3.interpolateBlues(0.3 + 0.65 * t);
    const points = chart.across.flatMap(([shade, places, trial, words], line) => places.map((y, i) => ({ line, shade, trial, words, x: names[i], y })).filter((p) => p.y !== null));
    const ends = chart.axes.flatMap(([, low, high], i) => [{ x: names[i], y: 0, text: low }, { x: names[i], y: 1, text: high }]);
    return show(target, {
      width, height, marginLeft: 40, marginRight: 40, marginTop: 26, marginBottom: 44, x: { type: "point", domain: names, label: null, tickSize: 0, tickPadding: 20 }, y: { axis: null, domain: [0, 1] },
      marks: [
        Plot.ruleX(names, { stroke: "var(--muted)" }),
        Plot.line(points, { x: "x", y: "y", z: "line", stroke: (p) => hue(p.shade), strokeWidth: (p) => 0.8 + 1.4 * p.shade }),
        ...[0, 1].map((end) => Plot.text(ends.filter((p) => p.y === end), { x: "x", y: "y", text: "text", dy: end ? -9 : 10, fill: "var(--muted)" })),
        Plot.tip(points, Plot.pointer({ x: "x", y: "y", title: (p) => p.words })),
      ],
    }, chart.words);
  }
  /** Charts side by side, each with its title and note. */
  function drawAll(box, charts, how, open) {
    const hue = huesOf(charts);
    box.replaceChildren(...charts.map((chart) => make("figure", {}, make("figcaption", {}, chart.title), make("div"), chart.note && make("figcaption", {}, chart.note))));
    charts.forEach((chart, i) => draw(box.children[i].querySelector("div"), chart, { ...how, hue }, open));
  }
  const openPoint = (point) => openTrial(point.trial ?? null);
  function charts() {
    for (const box of document.querySelectorAll("[data-charts]")) {
      const all = data.charts[box.dataset.charts] ?? [];
      drawAll(box, all, { width: 390, height: 250 }, all.some((chart) => chart.choice || chart.kind === "parallel") ? openPoint : null);
      if (data.charts_left_out) box.append(make("p", { class: "note" }, `${data.charts_left_out} charts of this page are left out to keep it small: they are pictures under figures/.`));
    }
  }

  // --- the figure of the answer: charts of which a reader chooses

  const state = {};
  const choices = () => data.figure.flatMap((name) => data.charts[name] ?? []).filter((chart) => chart.choice);
  /** Shows the charts that have the last of these words, and agree with the others in as much as there is. */
  function choose(wanted, asked = true) {
    const given = Object.keys(wanted).at(-1), fitting = choices().filter((chart) => chart.choice[given] === wanted[given]);
    const agree = (chart) => Object.entries(wanted).filter(([key, word]) => chart.choice[key] === word).length;
    const best = (fitting.length ? fitting : choices()).reduce((a, b) => (agree(b) > agree(a) ? b : a));
    Object.assign(state, { choice: { ...best.choice }, asked });
    figure();
  }
  function selectors() {
    const keys = distinct(choices().flatMap((chart) => Object.keys(chart.choice)));
    return keys.map((key) => {
      const rest = Object.entries(state.choice).filter(([other]) => other !== key && other !== "width");
      const fitting = key === "width" ? choices().filter((chart) => rest.every(([other, word]) => chart.choice[other] === word)) : choices();
      const words = distinct(fitting.map((chart) => chart.choice[key])).filter(Boolean);
      return words.length > 1 ? chooser(key, words.map((word) => [word, short(word, 60)]), state.choice[key], (word) => {
        const { [key]: _, ...others } = state.choice;
        choose({ ...others, [key]: word });
      }) : null;
    }).filter(Boolean);
  }
  /** Whether lines have a band: a line of winners has one value at each place. */
  const overSeeds = (chart) => (chart.lines ?? []).some(([, points]) => points.some(([, , low]) => low !== undefined && low !== null));
  function figure() {
    if (!choices().length) {
      if (byId("figure")) byId("figure").remove();
      return;
    }
    const same = (chart) => Object.entries(state.choice).every(([key, word]) => chart.choice[key] === word);
    const shown = choices().filter(same), radii = shown[0].look === "verdicts", leads = shown.some((chart) => chart.kind !== "rows" || chart.rows.some((row) => row.trial !== null)), abreast = Math.max(1, Math.min(shown.length, Math.floor(wide() / 312)));
    const one = Math.floor(wide() / abreast) - (abreast > 1 ? 12 : 0), rows = Math.ceil(shown.length / abreast);
    byId("selectors").replaceChildren(...selectors());
    if (state.choice.by) compareBy(state.choice.by);
    byId("chart").classList.toggle("abreast", shown.length > 1);
    drawAll(byId("chart"), shown, { width: one, height: rows > 1 ? 300 : one < 500 ? 330 : 420, ends: true, chosen: radii ? findings[state.chosen]?.machine : null },
      (point, chart) => (radii ? openFinding(findings.findIndex((f) => f.ball === chart.ball && f.memory === chart.memory && f.machine === point.name), point.trial) : openPoint(point)));
    if (abreast > 1) [...byId("chart").children].forEach((each) => { each.style.width = `${one}px`; });
    byId("caption").replaceChildren(radii ? "Medians over seeds, with a band from the smallest to the largest; small marks are seeds, hollow where the fit is not valid. Dashed: the limit slope of each line. Click a mark, or a verdict, for the evidence." : `${shown.some(overSeeds) ? "Medians over seeds; a band reaches from the smallest to the largest. " : ""}${leads ? "Click a mark for its trial." : ""}`,
      data.unshown ? ` The evidence of ${data.unshown} verdicts is left out here to keep the page small: it is in radii.csv.` : "");
  }

  /** Shows the table and the sentence of what models are compared by, as the chart does. */
  function compareBy(name) {
    for (const part of document.querySelectorAll("[data-by]")) {
      part.hidden = part.dataset.by !== name;
      if (part.tagName === "DETAILS") part.open = true;
    }
    const own = document.querySelector(`[data-by="${CSS.escape(name)}"] > .said`), place = document.querySelector("[data-said]");
    if (place) place.replaceChildren(...(own ? [...own.childNodes].map((node) => node.cloneNode(true)) : state.said));
  }

  // --- evidence: of a verdict, and of a trial

  const radiusShown = () => data.figure.some((name) => name.startsWith("radius")) && choices().length > 0;
  const beyondSign = { above: "> ", below: "< " };
  const trialName = (trial) => Object.entries(trial.fields).map(([path, v]) => `${path.split(".").pop()} ${v}`).join(", ");
  const trialButton = (number) => number === null || !data.trials[number] ? "–"
    : make("button", { class: "plain id", type: "button", title: "show this trial", onclick: () => openTrial(number) }, data.trials[number].id.slice(0, 8));

  function openFinding(index, trial = null) {
    const finding = findings[index];
    state.chosen = index;
    for (const link of document.querySelectorAll("a[data-finding]"))
      link.toggleAttribute("aria-current", Number(link.dataset.finding) === index);
    if (radiusShown()) choose(finding.choice);
    const strip = make("div", { class: "small-figures" }), points = make("div", { class: "low" }), detail = make("div", { id: "trial" });
    evidence(
      make("h2", {}, make("span", { class: finding.verdict }, `${SIGNS[finding.verdict]} ${finding.verdict}${finding.marked ? "†" : ""}`),
        `: ${finding.memory}, ${finding.machine}, when ${data.balls[finding.ball]}`),
      make("details", { open: finding.verdict === "inconclusive" }, make("summary", {}, "why"), make("ul", {}, finding.reasons.map((r) => make("li", {}, powers(r))))),
      make("h3", {}, "The verdict under every threshold and range"), strip,
      make("details", { open: true }, make("summary", {}, `Its ${finding.points.length} points: radius, median over seeds [smallest, largest]`), points), detail);
    if (finding.slopes.length) drawAll(strip, finding.slopes, { width: 330 }, null);
    else strip.append(make("p", { class: "note" }, "There is too little data for a slope at any threshold."));
    const at = (radius) => !radius ? "no valid fit" : `${beyondSign[radius[3]] ?? ""}${radius[4]}`;
    points.append(tableOf("Points", ["width", "horizon", ...data.thresholds.map((t) => `at ${share(t)}`), "seeds that fit", "trial"],
      [...finding.points].sort((a, b) => (b[0] === finding.width) - (a[0] === finding.width)).map(([w, h, number, seeds, valid, radii]) => [num(w), num(h), ...radii.map(at), `${valid} of ${seeds}`, trialButton(number)])));
    enhance(points.querySelector("table"));
    if (trial !== null) openTrial(trial);
  }
  function evidence(...parts) {
    const panel = byId("evidence");
    panel.hidden = false;
    panel.replaceChildren(make("button", { class: "close", type: "button", onclick: closeEvidence }, "close"), ...parts);
    panel.scrollIntoView({ block: "nearest" });
  }
  function closeEvidence() {
    byId("evidence").hidden = true;
    state.chosen = -1;
    document.querySelectorAll("a[data-finding]").forEach((link) => link.removeAttribute("aria-current"));
    if (radiusShown()) figure();
  }
  function openTrial(number) {
    const trial = number === null ? null : data.trials[number];
    if (!trial) return;
    if (!byId("trial") || byId("evidence").hidden) evidence(make("div", { id: "trial" }));
    const source = { ...data.sources[trial.source], finished: trial.finished };
    const curves = make("div", { class: "small-figures" });
    const metric = trial.seeds.some((seed) => seed[3] !== null);
    const query = `tags.\`memsweep.identity\` = '${trial.id}'`;
    const list = (fields) => make("dl", {}, Object.entries(fields).filter(([, v]) => v).flatMap(([k, v]) => [make("dt", {}, k), make("dd", {}, String(v))]));
    byId("trial").replaceChildren(
      make("h3", {}, `Trial ${trial.id.slice(0, 8)}: ${trialName(trial) || data.study}`),
      make("p", { class: "small" }, make("span", { class: "id" }, trial.id), " ", copyButton(trial.id), " · ",
        data.records ? make("a", { href: `${data.records}${trial.id}.json` }, "its record") : `records/${trial.id}.json in the study's folder`, ` · in MLflow, search the runs for `,
        data.runs_page ? make("a", { href: data.runs_page.replace(/searchFilter=[^&]*/, `searchFilter=${encodeURIComponent(query)}`) }, query) : make("span", { class: "id" }, query), " ", copyButton(query)),
      curves,
      tableOf("Seeds of this trial", ["seed", "outcome", "test loss", ...(metric ? ["metric"] : []), "best step"],
        trial.seeds.map(([seed, outcome, loss, m, step]) => [String(seed), outcome, num(loss), ...(metric ? [num(m)] : []), num(step, 6)])),
      make("details", {}, make("summary", {}, "configuration"), list({ ...trial.fields, ...data.common })),
      make("details", {}, make("summary", {}, "provenance"), list(source)));
    drawAll(curves, trial.charts, { width: 330, height: 200 }, null);
    byId("trial").scrollIntoView({ block: "nearest" });
  }

  // --- tables: sort by a heading, filter by a word

  function keyOf(text) {
    const found = text.replaceAll("−", "-").replace(/(\d),(?=\d{3})/g, "$1").match(/-?∞|[-+]?\d+(\.\d+)?(e-?\d+)?/i);
    return found ? (found[0].includes("∞") ? (found[0] === "-∞" ? -Infinity : Infinity) : Number(found[0])) : NaN;
  }
  /** Makes pale what a column says in three of four rows, so that its exceptions are seen. */
  function paleUsual(cells) {
    const counts = new Map();
    for (const cell of cells) counts.set(cell.textContent, (counts.get(cell.textContent) ?? 0) + 1);
    for (const cell of cells) cell.classList.toggle("usual", counts.get(cell.textContent) >= 0.75 * cells.length);
  }
  function enhance(table) {
    const bodies = [...table.tBodies];
    const rows = bodies.flatMap((body) => [...body.rows]).filter((row) => !row.classList.contains("family"));
    if (rows.length < 3) return;
    [...table.tHead.rows[0].cells].forEach((heading, place) => {
      const button = make("button", { class: "sort", type: "button" }, heading.textContent);
      button.addEventListener("click", () => {
        const up = heading.getAttribute("aria-sort") !== "ascending";
        [...table.tHead.rows[0].cells].forEach((cell) => cell.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", up ? "ascending" : "descending");
        for (const body of bodies) {
          const part = [...body.rows].filter((row) => !row.classList.contains("family"));
          const keys = new Map(part.map((row) => [row, row.cells[place]?.textContent.trim() ?? ""]));
          const compare = (a, b) => {
            const [x, y] = [keyOf(keys.get(a)), keyOf(keys.get(b))];
            const order = Number.isNaN(x) || Number.isNaN(y) ? Number.isNaN(x) - Number.isNaN(y) || keys.get(a).localeCompare(keys.get(b)) : x - y;
            return up ? order : -order;
          };
          body.append(...part.sort(compare));
        }
      });
      heading.replaceChildren(button);
      if (place) paleUsual(rows.map((row) => row.cells[place]).filter(Boolean));
    });
    if (rows.length < 9 || table.closest(".table-side")) return;
    const count = make("span", { role: "status" });
    const input = make("input", { type: "search", oninput: () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        left += !row.hidden;
      }
      count.textContent = words.length ? ` ${left} of ${rows.length} rows` : "";
    } });
    table.closest(".scroll").before(make("p", { class: "filter" }, make("label", {}, "filter ", input), count));
  }
  function trialsTable() {
    const numbered = data.trials.map((trial, number) => ({ trial, number })).filter(({ trial }) => trial);
    if (numbered.length < 2) return;
    const bad = ({ trial }) => trial.seeds.filter((seed) => seed[1] !== "done").length;
    numbered.sort((a, b) => bad(b) - bad(a));
    const paths = distinct(numbered.flatMap(({ trial }) => Object.keys(trial.fields))).slice(0, 8);
    const section = byId("trials");
    section.hidden = false;
    document.querySelector("nav ul")?.append(make("li", {}, make("a", { href: "#trials" }, "Trials")));
    const table = tableOf("Trials", ["trial", ...paths.map((path) => path.split(".").pop()), "test loss", "seeds"],
      numbered.map((one) => [trialButton(one.number), ...paths.map((path) => one.trial.fields[path] ?? "–"),
        num(d3.median(one.trial.seeds.map((seed) => value(seed[2])))), bad(one) ? `${bad(one)} of ${one.trial.seeds.length} not done` : String(one.trial.seeds.length)]));
    section.append(make("h2", {}, "Trials"), make("p", {}, "Those with seeds that ended unusually come first. A trial leads to its seeds, curves, configuration and provenance." +
      (data.without_room ? ` ${data.without_room} of ${data.trials.length} trials are left out here to keep the page small: they are in trials.csv.` : "")),
      make("details", { open: numbered.length <= 12 }, make("summary", {}, `${numbered.length} trials`), table));
    enhance(table.querySelector("table"));
  }

  // --- start

  function begin() {
    data = JSON.parse(byId("data").textContent);
    findings = data.findings.map((finding, index) => ({ ...finding, index }));
    Object.assign(state, { choice: { ...data.chosen }, chosen: -1, asked: false, said: [...(document.querySelector("[data-said]")?.childNodes ?? [])] });
    document.body.classList.add("scripted");
    document.querySelectorAll("table.data").forEach(enhance);
    trialsTable();
    figure();
    charts();
  }
  begin();
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-finding]");
    if (!link || !findings[Number(link.dataset.finding)]) return; // without room here: the link leads to the table
    event.preventDefault();
    openFinding(Number(link.dataset.finding));
  });
  let last = wide();
  addEventListener("resize", () => { if (wide() !== last && byId("figure")) { last = wide(); figure(); } });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.dataset.was = part.open; part.open = true; }));
  addEventListener("afterprint", () => document.querySelectorAll("details").forEach((part) => { part.open = part.dataset.was === "true"; }));

  // --- while the study runs

  /** Takes the place of this page by the newest one; what the reader has opened stays open. */
  async function renew() {
    const text = await (await fetch(location.href, { cache: "no-store" })).text();
    const next = new DOMParser().parseFromString(text, "text/html");
    const open = [...document.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent);
    const shown = { ...state }, reading = !byId("evidence").hidden, old = findings[state.chosen];
    const trial = byId("trial")?.querySelector(".id")?.textContent;
    document.title = next.title;
    byId("data").textContent = next.getElementById("data").textContent;
    document.querySelector("main").replaceWith(next.querySelector("main"));
    begin();
    document.querySelectorAll("details > summary").forEach((summary) => { summary.parentElement.open ||= open.includes(summary.textContent); });
    if (shown.asked && choices().length) choose(shown.choice);
    if (!reading) return;
    const same = findings.find((f) => old && f.ball === old.ball && f.memory === old.memory && f.machine === old.machine);
    const place = trial ? data.trials.findIndex((one) => one && one.id === trial) : -1;
    const top = scrollY;
    if (same) openFinding(same.index, place < 0 ? null : place);
    else if (place >= 0) openTrial(place);
    scrollTo(0, top);
  }
  function follow() {
    const every = Number(byId("live").dataset.every);
    if (every) { // a file that is written again and again
      setInterval(() => { if (byId("evidence").hidden) location.reload(); }, 1000 * every);
      return;
    }
    const events = new EventSource("events");
    const say = (words) => { if (byId("live-state")) byId("live-state").textContent = words; };
    events.addEventListener("progress", (event) => {
      const now = JSON.parse(event.data);
      if (!byId("live")) return;
      say("Running, incomplete:");
      byId("live-words").textContent = now.words;
      byId("live-stamp").textContent = `(${now.stamp})`;
      byId("live-bar").value = now.fraction;
      for (const cell of document.querySelectorAll("[data-cell]")) cell.textContent = now.cells[cell.dataset.cell] ?? cell.textContent;
    });
    events.addEventListener("page", () => renew().catch(() => say("A newer page could not be read:")));
    events.addEventListener("end", async (event) => {
      const end = JSON.parse(event.data);
      if (end.final) await renew().catch(() => say("The report could not be read:"));
      else say(`Ended, incomplete${end.why ? ` (${end.why})` : ""}:`);
      events.close();
      document.querySelector("main").prepend(make("p", { class: "note", role: "status" },
        end.final ? `The sweep has ended: this is its report, ${end.file}. This address has ended with it.` : "The sweep has ended without a report."));
    });
    events.addEventListener("error", () => say("Not running any more, or stopped (no connection):"));
  }
  if (byId("live")) follow();
})();
