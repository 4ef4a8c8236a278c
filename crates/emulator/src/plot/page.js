"use strict";
// Draws the curves in #data, one panel below the other; cursors and zoom of a terminal's panels move together.
(() => {
  const colours = ["#1f77b4", "#9ecae1", "#d62728", "#fc9272", "#2ca02c", "#9467bd", "#8c564b", "#e377c2"];
  const root = document.getElementById("plots");
  const terminals = JSON.parse(document.getElementById("data").textContent);
  const width = () => Math.max(400, Math.min(1400, document.body.clientWidth));
  const plots = [];
  for (const [number, terminal] of terminals.entries()) {
    const title = document.createElement("h2");
    title.textContent = terminal.name;
    root.appendChild(title);
    const group = uPlot.sync(`terminal-${number}`);
    const zoom = (plot) => {
      const { min, max } = plot.scales.x;
      for (const other of group.plots) {
        if (other !== plot && (other.scales.x.min !== min || other.scales.x.max !== max)) {
          other.setScale("x", { min, max });
        }
      }
    };
    for (const panel of terminal.panels) {
      const series = panel.curves.map((curve, index) => ({
        label: curve.name,
        stroke: colours[index % colours.length],
        width: 1.2,
        points: { show: false },
        // Nothing where the cursor is on no point: "--" would read like a value.
        value: (_, y) => (y == null ? "" : String(Math.round(1000 * y) / 1000)),
      }));
      const unit = panel.unit ? ` (${panel.unit})` : "";
      const options = {
        title: panel.title + unit,
        width: width(),
        height: 220,
        scales: { x: { time: false } },
        cursor: { sync: { key: group.key } },
        series: [{ label: "time (s)", value: (_, t) => (t == null ? "" : t.toFixed(2)) }, ...series],
        axes: [{}, { size: 70 }],
        hooks: { setScale: [(plot, key) => key === "x" && zoom(plot)] },
      };
      const holder = document.createElement("div");
      root.appendChild(holder);
      const plot = new uPlot(options, [terminal.t, ...panel.curves.map((curve) => curve.y)], holder);
      group.sub(plot);
      plots.push(plot);
      if (panel.note) {
        const note = document.createElement("p");
        note.textContent = panel.note;
        root.appendChild(note);
      }
    }
  }
  addEventListener("resize", () => {
    for (const plot of plots) {
      plot.setSize({ width: width(), height: 220 });
    }
  });
})();
