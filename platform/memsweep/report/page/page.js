// The page of a report: draws the figure of the answer, opens evidence, sorts and filters tables.
// Without it the page still has its answer, a picture of it, and every table.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  let data, findings; // of the page that is shown; a live page is exchanged for a newer one
  const WORDS = { horizon: "horizon T (steps)", width: "width m" };
  const TONES = {
    stable: "var(--stable)", unstable: "var(--unstable)", inconclusive: "var(--open)",
    agrees: "var(--stable)", disagrees: "var(--unstable)", undecided: "var(--open)",
  };
  const MARKS = { stable: "circle", unstable: "triangle", inconclusive: "diamond2" };
  const SIGNS = { stable: "●", unstable: "▲", inconclusive: "◇" };
  const HUES = ["#d55e00", "#0072b2", "#009e73", "#b5539b", "#8c6d00", "#56b4e9", "#7a7f87"];
  const MOST_FACETS = 3;

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
  /** Limits around positive values, of at least this many decades: noise must not look like a trend. */
  function logDomain(values, least = 1.2) {
    const known = values.map(value).filter((v) => Number.isFinite(v) && v > 0);
    if (!known.length) return [0.1, 1];
    const [low, high] = [Math.log10(Math.min(...known)), Math.log10(Math.max(...known))];
    const room = Math.max(0.08, (least - (high - low)) / 2);
    return [10 ** (low - room), 10 ** (high + room)];
  }
  const logAxis = (domain, label) => ({ type: "log", domain, label, ticks: logTicks(domain), tickFormat: (v) => num(v) });
  const valueAxis = (values, label, most = 6) => {
    const all = numbers(values);
    const few = all.length <= most ? all : all.filter((_, i) => i % Math.ceil(all.length / most) === 0);
    return { type: "log", domain: [all[0] / 1.12, all.at(-1) * 1.12], ticks: few, tickFormat: (v) => num(v), label };
  };
  /** Heights of labels at the ends of lines, moved apart where they would cover each other. */
  function apart(ends, [low, high], height, log = true) {
    const place = (y) => (log ? Math.log(y / low) / Math.log(high / low) : (y - low) / (high - low)) * height;
    const back = (p) => (log ? low * (high / low) ** (p / height) : low + (p / height) * (high - low));
    const sorted = [...ends].sort((a, b) => a.y - b.y);
    let floor = -Infinity;
    for (const end of sorted) {
      const at = Math.max(place(end.y), floor);
      end.label = back(at);
      floor = at + 15;
    }
    return sorted;
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

  // --- the figure of verdicts: radius against horizon or width

  const state = {};

  function linesOf(ball, memories) {
    const lines = [];
    for (const finding of findings.filter((f) => f.ball === ball && memories.includes(f.memory))) {
      const axis = state.axis;
      const width = state.width === "" ? finding.width : Number(state.width);
      for (const [w, horizon, trial, seeds, valid, at] of finding.points) {
        const radius = at[state.threshold];
        if ((axis === "horizon" ? w !== width : horizon !== finding.horizon) || !radius) continue;
        const [middle, low, high, beyond, text] = radius;
        lines.push({ finding, memory: finding.memory, machine: finding.machine, x: axis === "horizon" ? horizon : w,
          w, horizon, y: middle, low, high, beyond, text, trial, seeds, valid, faint: state.chosen >= 0 && state.chosen !== finding.index });
      }
    }
    return lines;
  }
  function radiusFigure() {
    const part = findings.filter((f) => f.ball === state.ball);
    const all = distinct(part.map((f) => f.memory));
    const memories = all.length <= MOST_FACETS ? all : [state.memory || all[0]];
    const points = linesOf(state.ball, memories);
    byId("selectors").replaceChildren(...radiusSelectors(part, all));
    const limit = share(data.thresholds[state.threshold]);
    if (!points.length) {
      byId("chart").replaceChildren(make("p", { class: "note" },
        "No model fits its target here, so that there is no radius to draw. The reasons of each verdict say what is short."));
      byId("caption").replaceChildren();
      return;
    }
    const width = wide(), small = width < 560, height = small ? 330 : 440;
    const facet = (width - 64 - 96 - 90 * (memories.length - 1)) / memories.length;
    const y = logDomain(points.flatMap((p) => [p.y, p.low, p.high]), 1.5);
    y[1] *= 1.45; // room for the guide
    const xs = numbers(points.map((p) => p.x));
    const ends = memories.flatMap((memory) => apart(distinct(points.filter((p) => p.memory === memory).map((p) => p.finding))
      .map((finding) => points.filter((p) => p.finding === finding).sort((a, b) => a.x - b.x).at(-1)), y, height - 70));
    const guide = memories.map((memory) => ({ memory, x1: xs[0], y1: y[1] / 1.3, x2: xs.at(-1),
      y2: (y[1] / 1.3) * (xs.at(-1) / xs[0]) ** data.limit }));
    const tone = (p) => TONES[p.finding.verdict];
    const opacity = (p) => (p.faint ? 0.22 : 1);
    const named = memories.length > 1 ? { fx: "memory" } : {};
    const chart = show(byId("chart"), {
      width, height, marginLeft: 52, marginRight: small ? 70 : 96, marginTop: memories.length > 1 ? 46 : 34, marginBottom: 38,
      fx: { domain: memories, label: null, padding: memories.length > 1 ? Math.min(0.5, 90 / (facet + 90)) : 0,
        tickFormat: (memory) => short(memory, 34) },
      x: valueAxis(xs, `${WORDS[state.axis]} →`, facet < 150 ? 2 : 6),
      y: logAxis(y, small ? `↑ radius at an error of ${limit}` : `↑ radius: how far the weights may move before the error passes ${limit}`),
      symbol: { type: "identity" },
      marks: [
        Plot.gridY({ ticks: logTicks(y), strokeOpacity: 0.12 }),
        Plot.link(guide, { ...named, x1: "x1", y1: "y1", x2: "x2", y2: "y2", stroke: "var(--muted)", strokeDasharray: "3,3" }),
        Plot.text(guide.slice(0, 1), { ...named, x: "x1", y: "y1", text: () => (small ? `slope ${num(data.limit)}` : `slope ${num(data.limit)}: what falls more steeply is unstable`),
          textAnchor: "start", dy: -7, fill: "var(--muted)", fontSize: 11.5 }),
        Plot.line(points, { ...named, x: "x", y: "y", z: (p) => p.finding.index, stroke: tone, strokeWidth: 2, strokeOpacity: opacity }),
        Plot.ruleX(points.filter((p) => p.high > p.low * 1.01), { ...named, x: "x", y1: "low", y2: "high", stroke: tone, strokeWidth: 1.2, strokeOpacity: (p) => 0.6 * opacity(p) }),
        Plot.dot(points, { ...named, x: "x", y: "y", symbol: (p) => MARKS[p.finding.verdict], r: 4.5,
          fill: (p) => (p.beyond ? "var(--paper)" : tone(p)), stroke: tone, fillOpacity: opacity, strokeOpacity: opacity }),
        Plot.text(points.filter((p) => p.beyond), { ...named, x: "x", y: "y", text: (p) => (p.beyond === "below" ? "↓" : "↑"), dy: (p) => (p.beyond === "below" ? 13 : -13), fill: tone }),
        Plot.text(ends, { ...named, x: "x", y: "label", text: (p) => short(p.machine, small ? 10 : 15), dx: 9, textAnchor: "start", fill: tone,
          fillOpacity: (p) => (p.faint ? 0.45 : 1), fontWeight: 600 }),
        Plot.tip(points, Plot.pointer({ ...named, x: "x", y: "y", title: tipOf })),
      ],
    }, altOf(ends, points));
    chart.style.cursor = "pointer";
    chart.addEventListener("click", () => chart.value && openFinding(chart.value.finding.index, chart.value.trial));
    byId("caption").replaceChildren(
      `Medians over seeds; bars reach from the smallest seed to the largest. `,
      state.axis === "horizon" ? `Width ${distinct(points.map((p) => p.w)).join(" or ")}. ` : `Horizon ${distinct(points.map((p) => num(p.horizon))).join(" or ")}. `,
      points.some((p) => p.beyond) ? "Open marks with an arrow: the radius lies beyond the grid. " : "",
      "Point at a mark for its value; click it, or a verdict, for the evidence.",
      data.unshown ? ` The evidence of ${data.unshown} verdicts is left out here to keep the page small: it is in radii.csv.` : "");
  }
  const beyondSign = { above: "> ", below: "< " };
  const within = ({ low, high }) => (num(low) === num(high) ? "" : ` [${num(low)}, ${num(high)}]`);
  const tipOf = (p) => `${p.machine}: ${SIGNS[p.finding.verdict]} ${p.finding.verdict}\n` +
    `radius ${beyondSign[p.beyond] ?? ""}${p.text}\n` +
    `horizon ${num(p.horizon)}, width ${num(p.w)}; ${p.valid} of ${p.seeds} seeds fit`;
  function altOf(ends, points) {
    const parts = ends.map((end) => {
      const first = points.filter((p) => p.finding === end.finding).sort((a, b) => a.x - b.x)[0];
      return `${end.memory}, ${end.machine} (${end.finding.verdict}): from ${num(first.y)} at ${num(first.x)} to ${num(end.y)} at ${num(end.x)}`;
    });
    return `Radius against ${state.axis} at an error of ${share(data.thresholds[state.threshold])}. ${parts.join("; ")}.`;
  }
  function radiusSelectors(part, memories) {
    const redraw = (name, convert = (v) => v) => (v) => { Object.assign(state, { [name]: convert(v), asked: true }); radiusFigure(); };
    const widths = numbers(part.flatMap((f) => f.points.map((p) => p[0])));
    const horizons = distinct(part.flatMap((f) => f.points.map((p) => p[1])));
    const boxes = [chooser("error limit", data.thresholds.map((t, i) => [i, share(t)]), state.threshold, redraw("threshold", Number))];
    if (Object.keys(data.balls).length > 1)
      boxes.push(chooser("moving weights", Object.entries(data.balls).map(([ball, words]) => [ball, words.replace(/^the | moves?$| weights/g, "")]), state.ball, redraw("ball")));
    if (memories.length > MOST_FACETS) boxes.push(chooser("memory", memories.map((m) => [m, short(m, 40)]), state.memory || memories[0], redraw("memory")));
    if (widths.length > 1 && horizons.length > 1) boxes.push(chooser("against", [["horizon", "horizon"], ["width", "width"]], state.axis, redraw("axis")));
    if (widths.length > 1 && state.axis === "horizon")
      boxes.push(chooser("width", [["", "as judged"], ...widths.map((w) => [w, num(w)])], state.width, redraw("width")));
    return boxes;
  }

  // --- the figures of other kinds of study

  function searchFigure() {
    const found = data.search;
    const sized = found.winners.length > 1 && found.size && found.winners.every((w) => w.size !== null);
    const fields = found.fields.map((name, i) => [i, name]);
    const goals = found.objectives.map((name, i) => [i, name]);
    const chosen = { field: 0, goal: 0 };
    if (!fields.length) return;
    const draw = () => {
      byId("selectors").replaceChildren(
        ...(fields.length > 1 ? [chooser("searched", fields, chosen.field, (v) => { chosen.field = Number(v); draw(); })] : []),
        ...(goals.length > 1 && !sized ? [chooser("objective", goals, chosen.goal, (v) => { chosen.goal = Number(v); draw(); })] : []));
      (sized ? bestFigure : dotFigure)(found, chosen);
    };
    draw();
  }
  const hueOf = (names) => (name) => HUES[names.indexOf(name) % HUES.length];
  function bestFigure(found, { field }) {
    const points = found.winners.map((w) => ({ ...w, y: w.values[field] })).filter((w) => Number.isFinite(w.y));
    const lines = distinct(points.map((p) => p.line)), hue = hueOf(lines);
    const log = found.log[field], ys = points.flatMap((p) => [p.y, ...p.basin[field]]), width = wide(), height = 430;
    const domain = log ? logDomain(ys, 1.5) : d3.extent(ys); // bars of the same size stand beside each other
    const beside = (p) => p.size * 1.03 ** (lines.indexOf(p.line) - (lines.length - 1) / 2);
    const ends = apart(lines.map((line) => points.filter((p) => p.line === line).sort((a, b) => a.size - b.size).at(-1)), domain, height - 70, log);
    const chart = show(byId("chart"), {
      width, height, marginLeft: 58, marginRight: 100, marginTop: 34, marginBottom: 38,
      x: valueAxis(points.map((p) => p.size), `${found.size} →`),
      y: log ? logAxis(domain, `↑ best ${found.fields[field]}`) : { label: `↑ best ${found.fields[field]}`, nice: true },
      marks: [
        Plot.gridY({ strokeOpacity: 0.12, ...(log ? { ticks: logTicks(domain) } : {}) }),
        Plot.ruleX(points.filter((p) => p.basin[field][1] > p.basin[field][0]), { x: beside, y1: (p) => p.basin[field][0], y2: (p) => p.basin[field][1],
          stroke: (p) => hue(p.line), strokeWidth: 7, strokeOpacity: 0.22, strokeLinecap: "round"  }),
        Plot.line(points, { x: beside, y: "y", z: "line", sort: "size", stroke: (p) => hue(p.line), strokeWidth: 2 }),
        Plot.dot(points, { x: beside, y: "y", fill: (p) => hue(p.line), r: 4.5 }),
        Plot.text(ends, { x: beside, y: "label", text: (p) => short(p.line, 16), dx: 9, textAnchor: "start", fontWeight: 600, fill: (p) => hue(p.line) }),
        Plot.tip(points, Plot.pointer({ x: beside, y: "y", title: (p) => `${p.line}, ${found.size} ${num(p.size)}\n${p.settings}\n` +
          found.objectives.map((name, i) => `${name} ${num(p.search[i])} in the search, ${num(p.fresh[i][0])} on fresh seeds`).join("\n") })),
      ],
    }, `Best ${found.fields[field]} against ${found.size}. ` + lines.map((line) => {
      const part = points.filter((p) => p.line === line).sort((a, b) => a.size - b.size);
      return `${line}: ${part.map((p) => `${num(p.y, 2)} at ${num(p.size)}`).join(", ")}`;
    }).join("; ") + ".");
    chart.addEventListener("click", () => chart.value && openTrial(chart.value.trial));
    byId("caption").replaceChildren("The winner of each cell; a pale bar reaches over the suggestions that are as good, within the 95 % interval of the winner on fresh seeds. Where a line is flat, or its bars overlap, the best value transfers. Click a mark for its trial.");
  }
  function dotFigure(found, { field, goal }) {
    const place = (one) => ({ ...one, x: value(one.values[field]), y: value(one.search[goal]) });
    const known = (p) => Number.isFinite(p.x) && Number.isFinite(p.y);
    const points = found.dots.map(place).filter(known);
    const winners = found.winners.map(place).filter(known);
    const names = distinct(points.map((p) => p.line)), hue = hueOf(names);
    const logY = points.length > 0 && d3.min(points, (p) => p.y) > 0 && d3.max(points, (p) => p.y) > 8 * d3.min(points, (p) => p.y);
    const ys = logDomain(points.map((p) => p.y), 0.5), xs = logDomain(points.map((p) => p.x), 0.3);
    const chart = show(byId("chart"), {
      width: wide(), height: 430, marginLeft: 58, marginTop: 34, marginRight: 30, marginBottom: 38,
      x: found.log[field] ? logAxis(xs, `${found.fields[field]} →`) : { label: `${found.fields[field]} →`, nice: true },
      y: logY ? logAxis(ys, `↑ ${found.objectives[goal]}`) : { label: `↑ ${found.objectives[goal]}`, nice: true },
      marks: [
        Plot.gridY({ strokeOpacity: 0.12, ...(logY ? { ticks: logTicks(ys) } : {}) }),
        Plot.dot(points, { x: "x", y: "y", r: 3, fill: (p) => (p.state === "done" ? hue(p.line) : "none"), stroke: (p) => hue(p.line), fillOpacity: 0.5, symbol: (p) => (p.state === "done" ? "circle" : "times") }),
        Plot.dot(winners, { x: "x", y: "y", r: 8, stroke: (p) => hue(p.line), strokeWidth: 2.5 }),
        Plot.text(winners, { x: "x", y: "y", text: (p) => (winners.length > 1 ? short(p.line, 18) : "the winner"), dy: 17, fontWeight: 600, fill: (p) => hue(p.line) }),
        Plot.tip(points, Plot.pointer({ x: "x", y: "y", title: (p) => `${found.fields.map((name, i) => `${name} ${num(p.values[i])}`).join("\n")}\n${found.objectives[goal]} ${num(p.y)}, ${p.state}` })),
      ],
    }, `${found.objectives[goal]} against ${found.fields[field]} of ${points.length} suggestions; the winner: ` +
      winners.map((p) => `${num(p.x)} with ${num(p.y)}`).join("; ") + ".");
    chart.addEventListener("click", () => chart.value && openTrial(chart.value.trial));
    const stopped = points.filter((p) => p.state !== "done").length;
    byId("caption").replaceChildren("Every suggestion by its median over the seeds of the search. ",
      stopped ? `Crosses (${stopped}): not trained to the end. ` : "", "The ring is the winner. Click a mark for its trial.");
  }

  /** All models on all tasks, by the share of the memoryless baseline's loss that they are below it. */
  function tasksFigure(memories) {
    const cells = data.ranking.map((r) => ({ ...r, y: value(r.removed), seen: Math.max(0, Math.min(1, value(r.removed))) }));
    const mean = d3.rollup(cells, (part) => d3.mean(part, (c) => c.seen), (c) => c.machine);
    const machines = [...mean.keys()].sort((a, b) => mean.get(b) - mean.get(a));
    const chart = show(byId("chart"), {
      width: wide(), height: 130 + 26 * machines.length, marginTop: 6, marginRight: 10, marginBottom: 96,
      marginLeft: Math.min(190, 20 + 7 * d3.max(machines, (name) => short(name, 24).length)),
      x: { domain: memories, label: null, tickRotate: -40, tickFormat: (name) => short(name, 18), tickSize: 0 },
      y: { domain: machines, label: null, tickFormat: (name) => short(name, 24), tickSize: 0 },
      color: { type: "linear", domain: [0, 1], range: ["#eef3f8", "#0b4f8a"] },
      marks: [
        Plot.cell(cells, { x: "memory", y: "machine", fill: "seen", inset: 1 }),
        Plot.text(cells, { x: "memory", y: "machine", text: (c) => (c.y > 0.005 ? `${Math.floor(100 * c.y)}` : "0"), fill: (c) => (c.seen > 0.5 ? "#ffffff" : "#1c2530") }),
        Plot.tip(cells, Plot.pointer({ x: "memory", y: "machine", title: (c) => `${c.machine} on ${c.memory}\n${share(c.y)} of the memoryless loss removed\n${c.metric} ${c.values.map((v) => num(v)).join(", ")}` })),
      ],
    }, `Percent of the memoryless loss that each model removes: ` + machines.map((machine) => `${machine}: ` +
      cells.filter((c) => c.machine === machine).map((c) => `${c.memory} ${num(100 * c.y, 2)}`).join(", ")).join("; ") + ".");
    chart.style.cursor = "pointer";
    chart.addEventListener("click", () => chart.value && openTrial(chart.value.trial));
    byId("caption").replaceChildren("Percent of the memoryless loss (the least of a model that forgets each input after its step) that a model removes, by its median seed: ",
      "100 is perfect, 0 no better. The best models on average stand first. Point at a cell for its seeds; click it for its trial.");
  }

  /** Test loss against the learning rate: a line for each parameterization or rule, one size at a time. */
  function ratesFigure() {
    let chosen = data.rates.length - 1; // the largest size
    const draw = () => {
      byId("selectors").replaceChildren(...(data.rates.length > 1
        ? [chooser("shown", data.rates.map((r, i) => [i, short(r.name, 70)]), chosen, (v) => { chosen = Number(v); draw(); })] : []));
      const lines = Object.keys(data.rates[chosen].lines), hue = hueOf(lines);
      const all = Object.entries(data.rates[chosen].lines).flatMap(([line, rows]) => rows.map((r) => {
        const [y, low, high] = r.loss.map(value);
        return { ...r, line, x: r.rate, y, low, high };
      }));
      const points = all.filter((p) => Number.isFinite(p.y) && p.y > 0), lost = all.filter((p) => p.diverged);
      const domain = logDomain(points.flatMap((p) => [p.y, p.low, p.high]), 1.5), height = 430;
      const within = (y) => Math.max(domain[0], Math.min(domain[1], y));
      const ends = apart(lines.flatMap((line) => points.filter((p) => p.line === line).slice(-1)), domain, height - 70);
      const chart = show(byId("chart"), {
        width: wide(), height, marginLeft: 62, marginRight: 110, marginTop: 34, marginBottom: 38,
        x: logAxis(logDomain(all.map((p) => p.x)), "learning rate →"), y: logAxis(domain, "↑ test loss"),
        marks: [
          Plot.gridY({ strokeOpacity: 0.12, ticks: logTicks(domain) }),
          Plot.areaY(points, { x: "x", y1: (p) => within(p.low), y2: (p) => within(p.high), z: "line", fill: (p) => hue(p.line), fillOpacity: 0.13 }),
          Plot.line(points, { x: "x", y: "y", z: "line", stroke: (p) => hue(p.line), strokeWidth: 2 }),
          Plot.dot(points, { x: "x", y: "y", fill: (p) => hue(p.line), r: 4 }),
          Plot.dot(lost, { x: "x", y: domain[1], symbol: "times", stroke: (p) => hue(p.line), r: 5 }),
          Plot.text(ends, { x: "x", y: "label", text: (p) => short(p.line, 18), dx: 9, textAnchor: "start", fontWeight: 600, fill: (p) => hue(p.line) }),
          Plot.tip(points, Plot.pointer({ x: "x", y: "y", title: (p) => `${p.line}, learning rate ${num(p.x)}\ntest loss ${num(p.y)} [${num(p.low)}, ${num(p.high)}]` +
            (p.diverged ? `\n${p.diverged} of ${p.seeds} seeds diverged` : "") })),
        ],
      }, `Test loss against the learning rate, ${data.rates[chosen].name}. ` + lines.map((line) =>
        `${line}: ${points.filter((p) => p.line === line).map((p) => `${num(p.y)} at ${num(p.x)}`).join(", ")}`).join("; ") + ".");
      chart.addEventListener("click", () => chart.value && openTrial(chart.value.trial));
      byId("caption").replaceChildren("Medians over seeds; a band reaches from the smallest to the largest. ",
        lost.length ? "A cross at the top: seeds diverged at this rate. " : "", "Click a mark for its trial.");
    };
    draw();
  }
  function rankingFigure() {
    const memories = distinct(data.ranking.map((r) => r.memory)), all = "";
    const whole = data.across && data.ranking.every((r) => Number.isFinite(value(r.removed)));
    const tasks = [...(whole ? [[all, "all tasks"]] : []), ...memories.map((m) => [m, short(m, 50)])];
    const chosen = { memory: tasks[0][0] };
    const choose = () => byId("selectors").replaceChildren(...(memories.length > 1
      ? [chooser("task", tasks, chosen.memory, (v) => { chosen.memory = v; draw(); })] : []));
    const draw = () => {
      choose();
      if (chosen.memory === all && whole) return tasksFigure(memories);
      const rows = data.ranking.filter((r) => r.memory === chosen.memory).slice(0, 24);
      const accuracy = rows[0].metric !== "test loss";
      const scale = accuracy ? 100 : 1, most = wide() < 560 ? 24 : 34; // letters of a name
      const label = `${rows[0].metric}${accuracy ? " (%)" : ""}`;
      const points = rows.flatMap((r) => r.values.map((v, seed) => ({ ...r, x: scale * value(v), seed }))).filter((p) => Number.isFinite(p.x));
      const middles = rows.map((r) => ({ ...r, x: scale * d3.median(r.values.map(value)) })).filter((p) => Number.isFinite(p.x));
      const log = !accuracy && d3.min(points, (p) => p.x) > 0 && d3.max(points, (p) => p.x) > 8 * d3.min(points, (p) => p.x);
      const domain = log ? logDomain(points.map((p) => p.x), 0.5) : null;
      const lost = rows.map((r) => [r, r.values.filter((v) => !Number.isFinite(value(v))).length]).filter(([, n]) => n);
      const chart = show(byId("chart"), {
        width: wide(), height: 70 + 46 * rows.length, marginLeft: Math.min(260, 20 + 7.2 * d3.max(rows, (r) => short(r.machine, most).length)), marginRight: 70, marginTop: 34, marginBottom: 40,
        x: log ? logAxis(domain, `${label} →`) : { label: `${label} →`, nice: true, grid: true },
        y: { domain: rows.map((r) => r.machine), label: null, tickFormat: (name) => short(name, most), tickSize: 0 },
        marks: [
          Plot.ruleY(rows, { y: "machine", stroke: "currentColor", strokeOpacity: 0.12 }),
          Plot.tickX(middles, { x: "x", y: "machine", stroke: "var(--ink)", strokeWidth: 2.5, inset: 10 }),
          Plot.dot(points, { x: "x", y: "machine", r: 3.6, fill: "var(--link)", fillOpacity: 0.65 }),
          Plot.text(middles, { x: "x", y: "machine", text: (p) => (accuracy ? p.x.toFixed(1) : num(p.x)), dy: -20, fontWeight: 600 }),
          Plot.tip(points, Plot.pointer({ x: "x", y: "machine", title: (p) => `${p.machine}\nseed ${p.seed}: ${num(p.x, 4)}` })),
        ],
      }, `${label} by setting, the best first: ${middles.map((p) => `${p.machine} ${num(p.x)}`).join(", ")}.`);
      chart.addEventListener("click", () => chart.value && openTrial(chart.value.trial));
      byId("caption").replaceChildren("A mark per seed; the stroke is their median. ",
        ...lost.map(([r, n]) => `${n} of ${r.values.length} seeds of ${r.machine} diverged. `), "Click a mark for its trial.");
    };
    draw();
  }

  function claimsFigure() {
    const ratio = data.claims.filter((c) => c.scale === "ratio").length * 2 >= data.claims.length;
    const rows = data.claims.filter((c) => (c.scale === "ratio") === ratio).slice(0, 20)
      .map((c) => ({ ...c, name: [c.claim, c.where].filter(Boolean).join(", "), x: value(c.effect[0]), low: value(c.effect[1]), high: value(c.effect[2]) }))
      .filter((c) => Number.isFinite(c.x) && (!ratio || c.x > 0));
    if (!rows.length) return;
    const neutral = ratio ? 1 : 0;
    const ends = rows.flatMap((c) => [c.x, c.low, c.high]).filter((v) => Number.isFinite(v) && (!ratio || v > 0)).concat(neutral);
    const domain = ratio ? logDomain(ends, 0.6) : [d3.min(ends), d3.max(ends)];
    const letters = Math.floor(wide() / 7.9), cut = (text) => (text.length <= letters ? text : `${text.slice(0, letters - 1)}…`);
    const clip = (v) => Math.min(Math.max(Number.isNaN(v) ? neutral : v, domain[0]), domain[1]);
    show(byId("chart"), {
      width: wide(), height: 80 + 52 * rows.length, marginLeft: 14, marginRight: 24, marginTop: 34, marginBottom: 40,
      x: ratio ? logAxis(domain, "left / right: 1 is no difference →") : { label: "left − right: 0 is no difference →", nice: true, domain },
      y: { domain: rows.map((c) => c.name), axis: null },
      marks: [
        Plot.ruleX([neutral], { stroke: "var(--ink)" }),
        Plot.ruleY(rows, { y: "name", x1: (c) => clip(c.low), x2: (c) => clip(c.high), stroke: (c) => TONES[c.tone], strokeWidth: 2.5 }),
        Plot.dot(rows, { x: "x", y: "name", r: 5, fill: (c) => TONES[c.tone] }),
        Plot.text(rows, { y: "name", frameAnchor: "left", text: (c) => cut(`${c.verdict}: ${c.name}`), dy: -18, textAnchor: "start", fill: (c) => TONES[c.tone], stroke: "var(--paper)", strokeWidth: 4, fontWeight: 600 }),
      ],
    }, `Effects with 95 % intervals: ${rows.map((c) => `${c.name} ${num(c.x)} [${num(c.low)}, ${num(c.high)}], ${c.verdict}`).join("; ")}.`);
    byId("caption").replaceChildren("Estimated effect of each claim, with its 95 % interval over seeds; a line across the whole picture: too few seeds for an interval.");
  }

  // --- charts of the sections

  function charts() {
    for (const box of document.querySelectorAll("[data-charts]")) {
      const all = (data.charts[box.dataset.charts] ?? []);
      const hue = hueOf(distinct(all.flatMap((chart) => [...chart.lines, ...(chart.dots ?? [])].map(([name]) => name))));
      box.replaceChildren(...all.map((chart) => make("figure", {}, make("figcaption", {}, chart.title), make("div"), chart.note && make("figcaption", {}, chart.note))));
      all.forEach((chart, i) => sectionChart(box.children[i].querySelector("div"), chart, chart.roles ? roleHue : hue));
      if (data.charts_left_out) box.append(make("p", { class: "note" }, `${data.charts_left_out} charts of this page are left out to keep it small: they are pictures under figures/.`));
    }
  }
  const roleHue = (name) => (name.startsWith("the winner") ? "#d55e00" : name.startsWith("stopped") ? "#9aa3ad" : "#0072b2");
  function sectionChart(target, chart, hue) {
    const rows = ([name, points], kind) => points.map(([x, y, low, high]) => ({ name, kind, x: value(x), y: value(y), low: value(low ?? y), high: value(high ?? y) }))
      .filter((p) => Number.isFinite(p.x) && Number.isFinite(p.y));
    const lines = chart.lines.flatMap((line) => rows(line, "line")), dots = (chart.dots ?? []).flatMap((one) => rows(one, "dot"));
    const all = [...lines, ...dots], levels = chart.levels ?? [], names = distinct(all.map((p) => p.name));
    const positive = (key) => all.every((p) => p[key] > 0), spreads = (key) => d3.max(all, (p) => p[key]) > 8 * d3.min(all, (p) => p[key]);
    const logX = chart.log.includes("x") && positive("x") && spreads("x");
    const logY = (chart.log.includes("y") || spreads("y")) && all.some((p) => p.y > 0);
    const fits = (p) => !logY || p.y > 0;
    const ys = [...all.flatMap((p) => [p.y, p.low, p.high]), ...levels.map(([v]) => v)].filter((v) => Number.isFinite(v) && (!logY || v > 0));
    if (!ys.length) return target.append(make("p", { class: "note" }, "Nothing finite to draw."));
    const least = Math.max(d3.min(ys), d3.max(ys) * 1e-9), domain = logY ? logDomain(ys.filter((v) => v >= least), 0.8) : d3.extent(ys);
    const clip = (v, other) => (Number.isFinite(v) ? Math.min(Math.max(v, domain[0]), domain[1]) : other);
    const drawn = lines.filter(fits), few = names.length > 1 && !chart.roles;
    show(target, {
      width: 390, height: 250, marginLeft: 56, marginTop: 24, marginRight: 16, marginBottom: 42,
      x: logX ? logAxis(logDomain(all.map((p) => p.x), 0.3), `${chart.x} →`) : { label: `${chart.x} →`, ticks: 5 },
      y: logY ? logAxis(domain, `↑ ${chart.y}`) : { label: `↑ ${chart.y}`, domain, nice: true, ticks: 5 },
      marks: [
        Plot.gridY({ strokeOpacity: 0.12, ...(logY ? { ticks: logTicks(domain) } : {}) }),
        Plot.ruleY(levels, { y: (l) => l[0], stroke: "var(--muted)", strokeDasharray: "3,3" }),
        Plot.text(levels, { y: (l) => l[0], text: (l) => l[1], frameAnchor: "left", dy: -6, dx: 3, textAnchor: "start", fill: "var(--muted)", fontSize: 11 }),
        Plot.areaY(drawn, { x: "x", y1: (p) => clip(p.low, domain[0]), y2: (p) => clip(p.high, domain[1]), z: "name", fill: (p) => hue(p.name), fillOpacity: chart.roles ? 0 : 0.13 }),
        Plot.line(drawn, { x: "x", y: (p) => clip(p.y), z: "name", stroke: (p) => hue(p.name), strokeWidth: (p) => (chart.roles && !p.name.startsWith("the winner") ? 0.9 : 2) }),
        Plot.ruleX(dots.filter((p) => p.high > p.low), { x: "x", y1: (p) => clip(p.low, domain[0]), y2: (p) => clip(p.high, domain[1]), stroke: (p) => hue(p.name) }),
        Plot.dot(dots.filter(fits), { x: "x", y: (p) => clip(p.y), r: 3.5, fill: "var(--paper)", stroke: (p) => hue(p.name) }),
        Plot.tip(all.filter(fits), Plot.pointer({ x: "x", y: (p) => clip(p.y), title: (p) => `${p.name}\n${chart.x} ${num(p.x)}: ${num(p.y)}${within(p)}` })),
      ],
    }, `${chart.title}: ${chart.y} against ${chart.x}. ` + names.slice(0, 12).map((name) => {
      const part = all.filter((p) => p.name === name).sort((a, b) => a.x - b.x);
      return `${name}: ${num(part[0].y)} at ${num(part[0].x)} to ${num(part.at(-1).y)} at ${num(part.at(-1).x)}`;
    }).join("; ") + ".");
    if (few) target.append(make("p", { class: "keys" }, names.map((name) => [make("i", { style: `background:${hue(name)}` }), `${name} `]).flat()));
  }

  // --- evidence: of a verdict, and of a trial

  const trialName = (trial) => Object.entries(trial.fields).map(([path, v]) => `${path.split(".").pop()} ${v}`).join(", ");
  const trialButton = (number) => number === null || !data.trials[number] ? "–"
    : make("button", { class: "plain id", type: "button", title: "show this trial", onclick: () => openTrial(number) }, data.trials[number].id.slice(0, 8));

  function openFinding(index, trial = null) {
    const finding = findings[index];
    Object.assign(state, { ball: finding.ball, threshold: data.thresholds.indexOf(finding.threshold), axis: finding.axis, memory: finding.memory, width: "", chosen: index });
    for (const link of document.querySelectorAll("a[data-finding]"))
      link.toggleAttribute("aria-current", Number(link.dataset.finding) === index);
    if (data.kind !== "search" && data.kind !== "losses") radiusFigure();
    const strip = make("div"), points = make("div", { class: "low" }), detail = make("div", { id: "trial" });
    evidence(
      make("h2", {}, make("span", { class: finding.verdict }, `${SIGNS[finding.verdict]} ${finding.verdict}${finding.bound ? "†" : ""}`),
        `: ${finding.memory}, ${finding.machine}, when ${data.balls[finding.ball]}`),
      make("details", { open: finding.verdict === "inconclusive" }, make("summary", {}, "why"), make("ul", {}, finding.reasons.map((r) => make("li", {}, r)))),
      make("h3", {}, "The verdict under every threshold and range"), strip,
      make("details", { open: true }, make("summary", {}, `Its ${finding.points.length} points: radius, median over seeds [smallest, largest]`), points), detail);
    stripFigure(strip, finding);
    const at = (radius) => !radius ? "no valid fit" : `${beyondSign[radius[3]] ?? ""}${radius[4]}`;
    points.append(tableOf("Points", ["width", "horizon", ...data.thresholds.map((t) => `at ${share(t)}`), "seeds that fit", "trial"],
      [...finding.points].sort((a, b) => (b[0] === finding.width) - (a[0] === finding.width)).map(([w, h, number, seeds, valid, radii]) => [num(w), num(h), ...radii.map(at), `${valid} of ${seeds}`, trialButton(number)])));
    enhance(points.querySelector("table"));
    if (trial !== null) openTrial(trial);
  }
  function stripFigure(target, finding) {
    const names = ["limit slope in horizon", "slope in width", "slope over all horizons"];
    const rows = finding.slopes.flatMap((kinds, t) => kinds.map((ends, k) => ends && {
      range: names[k], at: share(data.thresholds[t]), x: value(ends[0]), low: value(ends[1]), high: value(ends[2]), text: ends[3] })).filter(Boolean);
    if (!rows.length) {
      target.append(make("p", { class: "note" }, "There is too little data for a slope at any threshold."));
      return;
    }
    const finite = rows.flatMap((r) => [r.x, r.low, r.high]).filter(Number.isFinite);
    const domain = [Math.min(-0.5, ...finite) - 0.05, Math.max(0.2, ...finite) + 0.05];
    const clip = (v, other) => (Number.isFinite(v) ? v : other);
    const says = (r) => (r.high < data.limit ? "unstable" : r.low > data.limit ? "stable" : "inconclusive");
    const shown = names.filter((name) => rows.some((r) => r.range === name));
    show(target, {
      width: Math.max(300, Math.min((byId("evidence").clientWidth || 1100) - 40, 1100)), height: 130, marginLeft: 46, marginTop: 30, marginBottom: 34,
      fx: { domain: shown, label: null }, x: { domain, label: "slope →", ticks: 5, tickFormat: (v) => num(v) },
      y: { domain: data.thresholds.map(share), label: null },
      marks: [
        Plot.ruleX([data.limit], { stroke: "var(--muted)", strokeDasharray: "3,3" }),
        Plot.ruleX([0], { stroke: "currentColor", strokeOpacity: 0.25 }),
        Plot.ruleY(rows, { fx: "range", y: "at", x1: (r) => clip(r.low, domain[0]), x2: (r) => clip(r.high, domain[1]), stroke: (r) => TONES[says(r)], strokeWidth: 5, strokeOpacity: 0.5 }),
        Plot.dot(rows.filter((r) => Number.isFinite(r.x)), { fx: "range", x: "x", y: "at", r: 4.5, fill: (r) => TONES[says(r)], symbol: (r) => MARKS[says(r)] }),
        Plot.tip(rows, Plot.pointer({ fx: "range", x: "x", y: "at", title: (r) => `${r.range} at ${r.at}: ${r.text}` })),
      ],
      symbol: { type: "identity" },
    }, `Slopes of the radius; below ${num(data.limit)} it keeps shrinking. ` +
      rows.map((r) => `${r.range} at ${r.at}: ${r.text}`).join("; ") + ".");
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
    if (data.kind !== "search" && data.kind !== "losses") radiusFigure();
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
      make("p", { class: "small" }, make("span", { class: "id" }, trial.id), " ", copyButton(trial.id), ` · records/${trial.id}.json in the study's folder · in MLflow, search the runs for `,
        data.runs_page ? make("a", { href: data.runs_page.replace(/searchFilter=[^&]*/, `searchFilter=${encodeURIComponent(query)}`) }, query) : make("span", { class: "id" }, query), " ", copyButton(query)),
      curves,
      tableOf("Seeds of this trial", ["seed", "outcome", "test loss", ...(metric ? ["metric"] : []), "best step"],
        trial.seeds.map(([seed, outcome, loss, m, step]) => [String(seed), outcome, num(loss), ...(metric ? [num(m)] : []), num(step, 6)])),
      make("details", {}, make("summary", {}, "configuration"), list({ ...trial.fields, ...data.common })),
      make("details", {}, make("summary", {}, "provenance"), list(source)));
    smallFigure(curves, "training", trial.training, "step", "validation loss", {});
    smallFigure(curves, "impulse response (thick: the target's)", trial.memory, "lag + 1", "|memory|", { shift: 1, logX: true });
    for (const [ball, curve] of Object.entries(trial.errors))
      smallFigure(curves, `error when ${data.balls[ball] || ball}`, curve, "radius β", "√(E(β) / L₀)", { logX: true, most: 100 });
    byId("trial").scrollIntoView({ block: "nearest" });
  }
  function smallFigure(target, title, curve, xLabel, yLabel, { shift = 0, logX = false, most = Infinity }) {
    if (!curve.length) return;
    const [xs, middle, low, high, target_] = curve;
    const rows = xs.map((x, i) => ({ x: x + shift, y: value(middle[i]), low: value(low[i]), high: value(high[i]), target: target_ ? value(target_[i]) : NaN }));
    const fits = (v) => Number.isFinite(v) && v > 0 && v <= most;
    const all = rows.flatMap((r) => [r.y, r.target]).filter(fits);
    if (!all.length) return;
    const least = Math.max(Math.min(...all), Math.max(...all) * 1e-7);
    const domain = logDomain(all.filter((v) => v >= least), 1);
    const inside = (v) => Math.min(Math.max(v, domain[0]), domain[1]);
    const lost = rows.filter((r) => r.y > most).length;
    const box = make("div");
    target.append(make("figure", {}, make("figcaption", {}, title), box));
    const drawn = rows.filter((r) => fits(r.y) && (!logX || r.x > 0));
    show(box, {
      width: 330, height: 190, marginLeft: 50, marginTop: 22, marginRight: 14, clip: true,
      x: logX ? logAxis(logDomain(drawn.map((r) => r.x), 0.3), `${xLabel} →`) : { label: `${xLabel} →`, ticks: 4 }, y: logAxis(domain, `↑ ${yLabel}`),
      marks: [
        Plot.line(rows.filter((r) => fits(r.target)), { x: "x", y: "target", stroke: "var(--muted)", strokeWidth: 5, strokeOpacity: 0.45 }),
        Plot.areaY(drawn, { x: "x", y1: (r) => inside(r.low), y2: (r) => inside(r.high), fill: "var(--link)", fillOpacity: 0.18 }),
        Plot.line(drawn, { x: "x", y: "y", stroke: "var(--link)", strokeWidth: 2 }),
        Plot.tip(drawn, Plot.pointerX({ x: "x", y: "y", title: (r) => `${xLabel} ${num(r.x)}: ${num(r.y)}${within(r)}` })),
      ],
    }, `${title}: ${yLabel} from ${num(drawn[0].y)} at ${num(drawn[0].x)} to ${num(drawn.at(-1).y)} at ${num(drawn.at(-1).x)}` +
      (lost ? `, and beyond ${num(most)} after that.` : "."));
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
    const table = tableOf("Trials", ["trial", ...paths.map((path) => path.split(".").pop()), "test loss", "seeds"],
      numbered.map((one) => [trialButton(one.number), ...paths.map((path) => one.trial.fields[path] ?? "–"),
        num(d3.median(one.trial.seeds.map((seed) => value(seed[2])))), bad(one) ? `${bad(one)} of ${one.trial.seeds.length} not done` : String(one.trial.seeds.length)]));
    section.append(make("h2", {}, "Trials"), make("p", {}, "Those with seeds that ended unusually come first. A trial leads to its seeds, curves, configuration and provenance." +
      (data.without_room ? ` ${data.without_room} of ${data.trials.length} trials are left out here to keep the page small: they are in trials.csv.` : "")),
      make("details", { open: numbered.length <= 12 }, make("summary", {}, `${numbered.length} trials`), table));
    enhance(table.querySelector("table"));
  }

  // --- start

  function figure() {
    if (data.kind === "search" && data.search) searchFigure();
    else if (data.kind === "losses" && data.rates.length) ratesFigure();
    else if (data.kind === "losses" && data.ranking.length) rankingFigure();
    else if (findings.length && !(data.kind === "claims" && data.claims.length)) radiusFigure();
    else if (data.claims.length) claimsFigure();
    else byId("figure").remove();
  }
  function begin() {
    data = JSON.parse(byId("data").textContent);
    findings = data.findings.map((finding, index) => ({ ...finding, index }));
    const first = findings.filter((f) => f.ball === data.ball);
    const horizonDecides = first.filter((f) => f.axis === "horizon").length * 2 >= first.length;
    Object.assign(state, { ball: data.ball, threshold: data.thresholds.indexOf(data.shown), width: "", memory: "", chosen: -1, asked: false,
      axis: horizonDecides ? "horizon" : "width" });
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
    if (shown.asked && shown.ball in data.balls) {
      Object.assign(state, shown, { chosen: -1 });
      figure();
    }
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
