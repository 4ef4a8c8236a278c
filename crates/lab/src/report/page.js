"use strict";
// Draws the figures in #data into the places that wait for them: shares of figures, and lines over a parameter.
(() => {
  const all = JSON.parse(document.getElementById("data").textContent);
  // Okabe and Ito's, told apart by the colour-blind; dashes where they come round. A contender looks alike on the whole page.
  const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9"];
  const dashes = [undefined, [6, 3], [2, 3], [12, 3, 2, 3], [12, 6]];
  const names = [...new Set(all.flatMap((figure) => figure.curves.map((curve) => curve.name)))];
  const line = (curve) => {
    const place = names.indexOf(curve.name);
    return {
      label: curve.name,
      stroke: colours[place % colours.length],
      dash: dashes[Math.floor(place / colours.length) % dashes.length],
      width: 1.5,
    };
  };
  const shares = (figure) => {
    const x = [...new Set(figure.curves.flatMap((curve) => curve.seconds))].sort((a, b) => a - b);
    const column = (curve) => {
      const share = new Map(curve.seconds.map((s, index) => [s, (index + 1) / curve.of]));
      let last = 0;
      return x.map((s) => (last = share.get(s) ?? last));
    };
    const series = figure.curves.map((curve) => ({
      ...line(curve),
      paths: uPlot.paths.stepped({ align: 1 }),
      points: { show: false },
      value: (_, y) => (y == null ? "" : `${Math.round(y * 100)} %`),
    }));
    return {
      data: [x, ...figure.curves.map(column)],
      options: {
        scales: { x: { time: false }, y: { range: [0, 1] } },
        series: [{ label: "s", value: (_, s) => (s == null ? "" : s.toFixed(3)) }, ...series],
        axes: [{ values: (_, ticks) => ticks.map((s) => `${s} s`) }, { size: 50 }],
      },
    };
  };
  const lines = (figure) => {
    const number = (_, y) => (y == null ? "" : y.toFixed(2));
    const data = [figure.x];
    const series = [{ label: figure.unit || "at", value: (_, x) => (x == null ? "" : String(x)) }];
    const bands = [];
    const add = (column, options) => {
      data.push(column);
      series.push({ spanGaps: true, value: number, ...options });
    };
    figure.curves.forEach((curve) => {
      const style = line(curve);
      add(curve.y, { ...style, points: { show: true, size: 6 } });
      // The interval: between two lines that are not drawn.
      const bound = { stroke: style.stroke, width: 0, points: { show: false }, class: "bound" };
      add(curve.high, { ...bound, label: `${curve.name}, at most` });
      add(curve.low, { ...bound, label: `${curve.name}, at least` });
      bands.push({ series: [data.length - 2, data.length - 1], fill: `${style.stroke}30` });
      if (curve.published.some((y) => y != null)) {
        const points = { show: true, size: 11, width: 2, fill: "#fff" };
        add(curve.published, { label: `${curve.name}, published`, stroke: style.stroke, width: 0, points });
      }
    });
    add(figure.limit, { label: "physical limit", stroke: "#777", dash: [3, 3], width: 1.5, points: { show: false } });
    return {
      data,
      options: {
        bands,
        scales: { x: { time: false, distr: figure.ratios ? 3 : 1 }, y: { range: (_, least, most) => [0, most * 1.05] } },
        series,
        // A tick for each place that was measured, unless they are too many, and none for the powers of ten between.
        axes: [
          figure.x.length > 24
            ? {}
            : { splits: () => figure.x, filter: (_, places) => places, values: (_, places) => places.map((x) => `${x} ${figure.unit}`) },
          { size: 50 },
        ],
      },
    };
  };
  const kinds = { shares, lines };
  const plots = [];
  const size = (holder) => ({ width: Math.max(240, Math.min(960, holder.clientWidth)), height: 260 });
  for (const figure of all) {
    const holder = document.getElementById(figure.id);
    const { data, options } = kinds[figure.kind](figure);
    plots.push([new uPlot({ title: figure.title, ...size(holder), ...options }, data, holder), holder]);
  }
  addEventListener("resize", () => plots.forEach(([plot, holder]) => plot.setSize(size(holder))));
})();
