"use strict";
// Draws the figures in #data into the places that wait for them: shares of figures, and lines over a parameter. A contender has one
// colour, line style and marker on the whole page; colours are the style sheet's, so that they fit the ground.
(() => {
  const { looks, figures } = JSON.parse(document.getElementById("data").textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const dashes = [undefined, [8, 4], [2, 3], [12, 3, 2, 3], [14, 6], [5, 2]];
  // Corners of a marker's polygon around a place, clockwise from straight up.
  const around = ({ corners, turn }) =>
    Array.from({ length: corners }, (_, k) => 2 * Math.PI * (turn + k / corners)).map((angle) => [Math.sin(angle), -Math.cos(angle)]);
  const look = (name) => {
    const { family, marker, dash } = looks[name];
    return { stroke: colour(family), marker, dash: dashes[dash % dashes.length] };
  };
  const points = (marker, size, hollow) => ({
    show: true,
    paths: (u, series) => {
      const path = new Path2D();
      const [x, y] = [u.data[0], u.data[series]];
      const radius = (size / 2) * devicePixelRatio;
      for (let k = 0; k < x.length; k++) {
        if (y[k] == null) continue;
        const [left, top] = [u.valToPos(x[k], "x", true), u.valToPos(y[k], "y", true)];
        around(marker).forEach(([dx, dy], corner) => path[corner ? "lineTo" : "moveTo"](left + radius * dx, top + radius * dy));
        path.closePath();
      }
      return { stroke: path, fill: hollow ? undefined : path };
    },
  });
  const line = (name) => {
    const { stroke, dash, marker } = look(name);
    return { label: `${marker.sign} ${name}`, stroke, dash, width: 1.75 };
  };
  const axes = (x, y) =>
    [x, y].map((axis) => ({ stroke: colour("ink"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") }, ...axis }));
  const shares = (figure) => {
    const x = [...new Set(figure.curves.flatMap((curve) => curve.seconds))].sort((a, b) => a - b);
    const column = (curve) => {
      const share = new Map(curve.seconds.map((s, index) => [s, (index + 1) / curve.of]));
      let last = 0;
      return x.map((s) => (last = share.get(s) ?? last));
    };
    const series = figure.curves.map((curve) => ({ ...line(curve.name), paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }));
    return {
      data: [x, ...figure.curves.map(column)],
      options: {
        scales: { x: { time: false, range: (_, least, most) => [0, most] }, y: { range: [0, 1] } },
        series: [{}, ...series],
        axes: axes({ values: (_, ticks) => ticks.map((s) => `${s} s`) }, { size: 50, values: (_, ticks) => ticks.map((y) => `${Math.round(100 * y)} %`) }),
      },
    };
  };
  const lines = (figure) => {
    const data = [figure.x];
    const series = [{}];
    const bands = [];
    const add = (column, options) => {
      data.push(column);
      series.push({ spanGaps: true, ...options });
    };
    figure.curves.forEach((curve) => {
      const style = line(curve.name);
      const { marker } = look(curve.name);
      add(curve.y, { ...style, points: { ...points(marker, 9), fill: style.stroke } });
      // The interval: between two lines that are not drawn.
      const bound = { stroke: style.stroke, width: 0, points: { show: false }, class: "bound" };
      add(curve.high, { ...bound, label: "at most" });
      add(curve.low, { ...bound, label: "at least" });
      bands.push({ series: [data.length - 2, data.length - 1], fill: `${style.stroke}30` });
      if (curve.published.some((y) => y != null)) {
        add(curve.published, { label: `${curve.name}, published (hollow)`, stroke: style.stroke, width: 0, points: { ...points(marker, 16, true), width: 2 } });
      }
    });
    if (figure.limit.some((y) => y != null)) {
      add(figure.limit, { label: "physical limit", stroke: colour("soft"), dash: [3, 3], width: 1.5, points: { show: false } });
    }
    const ticks = { splits: () => figure.x, filter: (_, places) => places, values: (_, places) => places.map((x) => `${x} ${figure.unit}`) };
    return {
      data,
      options: {
        bands,
        scales: { x: { time: false, distr: figure.ratios ? 3 : 1 }, y: { range: (_, least, most) => [0, most * 1.05] } },
        series,
        // A tick for each place that was measured, unless they are too many, and none for the powers of ten between.
        axes: axes(figure.x.length > 24 ? {} : ticks, { size: 50 }),
      },
    };
  };
  const kinds = { shares, lines };
  const size = (holder) => ({ width: Math.max(240, Math.min(900, holder.clientWidth)), height: 280 });
  let plots = [];
  const draw = () => {
    plots.forEach(([plot]) => plot.destroy());
    plots = figures.map((figure) => {
      const holder = document.getElementById(figure.id);
      const { data, options } = kinds[figure.kind](figure);
      const title = figure.ratios ? `${figure.title} (logarithmic)` : figure.title;
      return [new uPlot({ title, legend: { live: false }, cursor: { show: false }, ...size(holder), ...options }, data, holder), holder];
    });
  };
  draw();
  const fit = () => plots.forEach(([plot, holder]) => holder.clientWidth && plot.setSize(size(holder)));
  addEventListener("resize", fit);
  // A figure that was folded has no width until it is unfolded.
  document.querySelectorAll("details").forEach((one) => one.addEventListener("toggle", fit));
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", draw);
  // On paper all findings that are judged are to be read; what is folded below an experiment is for a screen.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll(".claims > details:not([open])")];
    folded.forEach((one) => (one.open = true));
  });
  addEventListener("afterprint", () => folded.forEach((one) => (one.open = false)));
})();
