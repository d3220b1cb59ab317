// Unpacks what the page carries (Plotly and the data, compressed), draws every chart, follows dark and light.
"use strict";

const escapeText = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

(() => {
  const CONFIG = {
    responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"],
    toImageButtonOptions: { format: "png", scale: 3 },
  };

  async function inflate(id) {
    const packed = document.getElementById(id).textContent.trim();
    const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function themed(layout) {
    const fg = colour("--fg"), muted = colour("--muted"), grid = colour("--grid"), line = colour("--line"), card = colour("--card");
    const themedLayout = {
      paper_bgcolor: card, plot_bgcolor: card, autosize: true, hovermode: "closest",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: fg },
      margin: { l: 64, r: 20, t: 52, b: 52 },
      // below the line of the mode bar
      legend: {
        orientation: "h", x: 0, xanchor: "left", y: 1 - 24 / layout.height, yref: "container", yanchor: "top", font: { size: 12.5 },
      },
      hoverlabel: { bgcolor: card, bordercolor: line, font: { color: fg, size: 13 }, namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: fg },
      ...layout,
    };
    for (const key of Object.keys(themedLayout).filter((name) => /^[xy]axis\d*$/.test(name))) {
      themedLayout[key] = {
        gridcolor: grid, linecolor: line, tickcolor: line, zeroline: false, showline: true, ticks: "outside", ticklen: 4,
        ...themedLayout[key], title: { ...themedLayout[key].title, font: { size: 13 }, standoff: 8 },
      };
    }
    return themedLayout;
  }

  async function plain(div, chart) {
    const draw = () => Plotly.react(div, chart.traces, themed({ ...structuredClone(chart.layout), height: chart.height }), CONFIG);
    await draw();
    return draw;
  }

  async function main() {
    if (typeof DecompressionStream === "undefined") throw new Error("this page needs a browser of 2023 or later");
    const [library, text] = await Promise.all([inflate("plotly-js"), inflate("page-data")]);
    const script = document.createElement("script");
    script.textContent = library;
    document.head.append(script);
    const data = JSON.parse(text), again = [];
    for (const chart of data.charts) {
      const div = document.getElementById(chart.id);
      again.push(chart.timelines.length ? await buildTimeline(div, chart, data.palette, themed, CONFIG) : await plain(div, chart));
      div.style.minHeight = "";
      div.dataset.drawn = "yes";
      await new Promise((done) => setTimeout(done));
    }
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => again.forEach((draw) => draw()));
  }

  main().catch((error) => {
    const place = document.getElementById("failed");
    place.hidden = false;
    place.textContent = `The charts cannot be drawn: ${error.message}`;
    console.error(error);
  });
})();
