"use strict";
// Draws the distributions in #data into the places that wait for them.
(() => {
  // Okabe and Ito's, told apart by the colour-blind; dashes where they come round.
  const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9"];
  const plots = [];
  const width = (holder) => Math.max(240, Math.min(960, holder.clientWidth));
  for (const figure of JSON.parse(document.getElementById("data").textContent)) {
    const holder = document.getElementById(figure.id);
    const x = [...new Set(figure.curves.flatMap((curve) => curve.seconds))].sort((a, b) => a - b);
    const column = (curve) => {
      const share = new Map(curve.seconds.map((s, index) => [s, (index + 1) / curve.seconds.length]));
      let last = 0;
      return x.map((s) => (last = share.get(s) ?? last));
    };
    const series = figure.curves.map((curve, index) => ({
      label: curve.name,
      stroke: colours[index % colours.length],
      dash: index < colours.length ? undefined : [6, 3],
      width: 1.5,
      paths: uPlot.paths.stepped({ align: 1 }),
      points: { show: false },
      value: (_, y) => (y == null ? "" : `${Math.round(y * 100)} %`),
    }));
    const options = {
      title: "Share of figures that are no larger",
      width: width(holder),
      height: 260,
      scales: { x: { time: false }, y: { range: [0, 1] } },
      series: [{ label: "s", value: (_, s) => (s == null ? "" : s.toFixed(3)) }, ...series],
      axes: [{ values: (_, ticks) => ticks.map((s) => `${s} s`) }, { size: 50 }],
    };
    plots.push([new uPlot(options, [x, ...figure.curves.map(column)], holder), holder]);
  }
  addEventListener("resize", () => plots.forEach(([plot, holder]) => plot.setSize({ width: width(holder), height: 260 })));
})();
