// The timeline: every span of every track is in the page; what is drawn is what a pixel can show.
"use strict";

function buildTimeline(div, chart, palette, themed, config) {
  const BAR = 17, ROW = 24, TOP = 58, BOTTOM = 52;
  const runs = chart.timelines.map((run) => ({ ...run, tracks: run.tracks.map((track) => unpack(track, run.unit_s)) }));
  const kinds = palette.order.filter((kind) => runs.some((run) => run.kinds.includes(kind)));
  const drawOrder = [...kinds].sort((a, b) => palette.kinds[a].mark - palette.kinds[b].mark ||
    b.startsWith("idle") - a.startsWith("idle"));
  const whole = [0, Math.max(...runs.map((run) => run.end_s))];
  let shown = 8, rows = [], pending = false;

  function unpack(track, unit) {
    const n = track.gap.length, start = new Float64Array(n), end = new Float64Array(n);
    let at = 0;
    for (let i = 0; i < n; i++) {
      start[i] = (at += track.gap[i]) * unit;
      end[i] = (at += track.length[i]) * unit;
    }
    return { ...track, start, end, inner: track.inner.map((units) => units * unit) };
  }

  // ---- rows ----

  function layRows() {
    rows = [];
    for (const run of runs) {
      if (runs.length > 1) rows.push({ header: run.name });
      rows.push(...run.tracks.slice(0, shown + 1).map((track) => ({ run, track })));
    }
  }

  function layout(range) {
    const tracks = rows.map((row, index) => [row, -index]).filter(([row]) => row.track);
    return themed({
      xaxis: { title: { text: "time since the run began, s" }, range, tickformat: ",", exponentformat: "none" },
      yaxis: {
        tickvals: tracks.map(([, y]) => y), ticktext: tracks.map(([row]) => row.track.name), fixedrange: true,
        range: [-rows.length + 0.4, 0.6], showgrid: false, ticks: "",
      },
      annotations: rows.map((row, index) => [row, -index]).filter(([row]) => row.header).map(([row, y]) => ({
        text: `<b>${escapeText(row.header)}</b>`, x: 0, xref: "paper", xanchor: "left", y, yref: "y", showarrow: false,
      })),
      hovermode: false, dragmode: "zoom", margin: { l: 84, r: 16, t: TOP, b: BOTTOM }, height: rows.length * ROW + TOP + BOTTOM,
    });
  }

  // ---- what a pixel can show ----

  function segments(range) {
    const width = div.clientWidth - 100, pixel = (range[1] - range[0]) / Math.max(width, 200);
    const lines = Object.fromEntries(kinds.map((kind) => [kind, { x: [], y: [] }]));
    const labels = { x: [], y: [], text: [] };
    const put = (kind, from, to, y) => { lines[kind].x.push(from, to, null); lines[kind].y.push(y, y, null); };
    rows.forEach((row, index) => {
      if (row.track) walk(row, -index, range, pixel, put, labels);
    });
    return { lines, labels };
  }

  function walk({ run, track }, y, range, pixel, put, labels) {
    const lastMark = {};
    let crowd = null;
    const flush = () => {
      if (!crowd) return;
      const kind = Object.keys(crowd.time).reduce((a, b) => (crowd.time[a] >= crowd.time[b] ? a : b));
      put(kind, crowd.from, Math.max(crowd.to, crowd.from + pixel), y);
      crowd = null;
    };
    for (let i = firstFrom(track, range[0]); i < track.start.length && track.start[i] < range[1]; i++) {
      const kind = run.kinds[track.kind[i]], from = track.start[i], to = track.end[i], wide = to - from >= pixel;
      if (wide) {
        flush();
        const room = kind === "train" && to - from > 4 * pixel ? pixel : 0;
        put(kind, from, to - room, y);
        if (kind === "train" && to - from > 26 * pixel) {
          labels.x.push((Math.max(from, range[0]) + Math.min(to, range[1])) / 2);
          labels.y.push(y);
          labels.text.push(String(track.number[i]));
        }
        continue;
      }
      if (palette.kinds[kind].mark && !((lastMark[kind] ?? -Infinity) > from)) {
        const middle = (from + to) / 2;
        put(kind, middle - 0.6 * pixel, middle + 0.6 * pixel, y);
        lastMark[kind] = middle + 1.2 * pixel;
      }
      crowd ??= { from, to, time: {} };
      crowd.to = to;
      crowd.time[kind] = (crowd.time[kind] ?? 0) + to - from;
      if (crowd.to - crowd.from >= pixel) flush();
    }
    flush();
  }

  function firstFrom(track, at) {
    let low = 0, high = track.end.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (track.end[middle] <= at) low = middle + 1; else high = middle;
    }
    return low;
  }

  // ---- drawing ----

  function traces(range) {
    const { lines, labels } = segments(range);
    const drawn = drawOrder.map((kind) => ({
      type: "scatter", mode: "lines", ...lines[kind], name: palette.kinds[kind].label, hoverinfo: "skip",
      legendrank: kinds.indexOf(kind), showlegend: true, line: { width: BAR, color: palette.kinds[kind].colour, simplify: false },
    }));
    drawn.push({ type: "scatter", mode: "text", ...labels, textfont: { color: "#ffffff", size: 11 }, hoverinfo: "skip", showlegend: false });
    return drawn;
  }

  function redraw() {
    pending = false;
    const fresh = traces(currentRange());
    Plotly.restyle(div, { x: fresh.map((t) => t.x), y: fresh.map((t) => t.y), text: fresh.map((t) => t.text ?? "") });
  }

  const currentRange = () => div.layout.xaxis.range.map(Number);
  const show = (range) => Plotly.relayout(div, { "xaxis.range": range, "xaxis.autorange": false });

  function stepsWindow(count) {
    const mean = Math.max(...runs.map((run) => {
      const steps = run.tracks[0].kind.filter((k) => run.kinds[k] === "train").length;
      return run.end_s / Math.max(steps, 1);
    }));
    const end = 0.9 * Math.min(...runs.map((run) => run.end_s)), length = count * mean;
    return length >= 0.75 * whole[1] ? whole : [Math.max(0, end - length), Math.max(end, length)];
  }

  async function draw(range) {
    layRows();
    await Plotly.react(div, traces(range), layout(range), { ...config, doubleClick: false });
  }

  // ---- hover ----

  const tip = div.parentElement.querySelector(".tip");

  function under(event) {
    const box = div.getBoundingClientRect(), { xaxis, yaxis } = div._fullLayout;
    const x = event.clientX - box.left - xaxis._offset, y = event.clientY - box.top - yaxis._offset;
    if (x < 0 || x > xaxis._length || y < 0 || y > yaxis._length) return null;
    const at = xaxis.p2d(x), row = rows[Math.round(-yaxis.p2d(y))];
    if (!row?.track) return null;
    const slack = xaxis.p2d(x + 2) - at;
    let index = firstFrom(row.track, at);
    for (let i = firstFrom(row.track, at - slack); i < row.track.start.length && row.track.start[i] < at + slack; i++) {
      if (palette.kinds[row.run.kinds[row.track.kind[i]]].mark && row.track.end[i] - row.track.start[i] < slack) index = i;
    }
    return row.track.start[index] <= at + slack ? { ...row, index } : null;
  }

  function describe({ run, track, index }) {
    const kind = run.kinds[track.kind[index]], look = palette.kinds[kind];
    const from = track.start[index], to = track.end[index], number = track.number[index];
    const lines = [`<b><i style="background:${look.colour}"></i>${escapeText(track.name)}: ${escapeText(look.label)}</b>`];
    const digits = decimals(to - from);
    lines.push(`${seconds(from, digits)} s to ${seconds(to, digits)} s: ${seconds(to - from, digits)} s`);
    if (number >= 0 && look.counted) lines.push(look.counted.replace("{}", number.toLocaleString("en")));
    if (track.name !== "trainer" && kind !== "load") lines.push(`serves version ${served(run, track, index)}`);
    if (track.finished[index]) {
      lines.push(`${track.finished[index].toLocaleString("en")} rollouts finished, ${track.tokens[index].toLocaleString("en")} tokens`);
    }
    if (track.inner[index] > 0) lines.push(`of it ${seconds(track.inner[index], decimals(track.inner[index]))} s shorter work (prefill, ...)`);
    return lines.join("<br>");
  }

  function served(run, track, index) {
    for (let i = index; i >= 0; i--) {
      if (run.kinds[track.kind[i]] === "load" && track.number[i] >= 0) return track.number[i];
    }
    return 0;
  }

  // three digits of a duration
  const decimals = (span) => (span > 0 ? Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(span)))) : 0);

  const seconds = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

  div.addEventListener("mousemove", (event) => {
    const found = under(event);
    tip.style.display = found ? "block" : "none";
    if (!found) return;
    tip.innerHTML = describe(found);
    const box = div.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.left = `${Math.max(0, Math.min(x + 14, box.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y + 16}px`;
  });
  div.addEventListener("mouseleave", () => { tip.style.display = "none"; });

  // ---- start ----

  const most = Math.max(...runs.map((run) => run.replicas_kept));
  const controls = div.parentElement.querySelector(".controls");
  for (const [label, range] of [["Whole run", () => whole], ["20 steps", () => stepsWindow(20)], ["8 steps", () => stepsWindow(8)], ["2 steps", () => stepsWindow(2)]]) {
    const button = document.createElement("button");
    button.textContent = label;
    button.addEventListener("click", () => show(range()));
    controls.append(button);
  }
  if (most > shown) {
    const select = document.createElement("select");
    for (const n of [8, 16, 32].filter((n) => n === 8 || n < most).concat(most).filter((n, i, all) => all.indexOf(n) === i)) {
      select.add(new Option(`first ${Math.min(n, most)} replicas`, Math.min(n, most)));
    }
    select.addEventListener("change", () => { shown = Number(select.value); draw(currentRange()); });
    controls.append(select);
  }
  return draw(stepsWindow(runs.length > 1 ? 4 : 8)).then(() => {
    div.on("plotly_relayout", (change) => {
      if (pending || !Object.keys(change).some((key) => key.startsWith("xaxis"))) return;
      pending = true;
      requestAnimationFrame(redraw);
    });
    div.on("plotly_doubleclick", () => show(whole));
    return () => draw(currentRange());
  });
}
