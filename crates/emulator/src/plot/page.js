"use strict";
// Draws the curves in #data, one panel below the other; cursors and zoom of a terminal's panels move together.
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  // Forward and return have colours of their own in all panels, and colour is never alone.
  const looks = {
    forward: { colours: ["a", "b", "e", "f"], dashes: [undefined, [2, 3], [12, 3, 2, 3], [5, 2]] },
    return: { colours: ["c", "d", "g", "h"], dashes: [[7, 4], [2, 5], [14, 4], [9, 2, 2, 2]] },
  };
  const look = ({ curves }, index) => {
    const way = (curve) => curve.name.split(" ")[0];
    const { colours, dashes } = looks[way(curves[index])];
    const place = curves.slice(0, index).filter((curve) => way(curve) === way(curves[index])).length % colours.length;
    return { stroke: colour(colours[place]), dash: dashes[place] };
  };
  const root = document.getElementById("plots");
  const terminals = JSON.parse(document.getElementById("data").textContent);
  const size = (holder) => ({ width: Math.max(240, holder.clientWidth), height: 220 });
  const places = [];
  for (const [number, terminal] of terminals.entries()) {
    const title = document.createElement("h2");
    title.textContent = terminal.name;
    root.appendChild(title);
    for (const panel of terminal.panels) {
      const holder = document.createElement("div");
      holder.className = "panel";
      root.appendChild(holder);
      places.push({ number, terminal, panel, holder });
      if (panel.note) {
        const note = document.createElement("p");
        note.textContent = panel.note;
        root.appendChild(note);
      }
    }
  }
  let plots = [];
  const options = ({ panel, holder, number }, group) => {
    const zoom = (plot) => {
      const { min, max } = plot.scales.x;
      for (const other of group.plots) {
        if (other !== plot && (other.scales.x.min !== min || other.scales.x.max !== max)) {
          other.setScale("x", { min, max });
        }
      }
    };
    const series = panel.curves.map((curve, index) => ({
      label: curve.name,
      ...look(panel, index),
      width: 1.4,
      points: { show: false },
      // Nothing where the cursor is on no point: "--" would read like a value.
      value: (_, y) => (y == null ? "" : (curve.names?.[y] ?? String(Math.round(1000 * y) / 1000))),
    }));
    const axis = { stroke: colour("ink"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
    return {
      ...size(holder),
      title: panel.title + (panel.unit ? ` (${panel.unit})` : ""),
      // An amount begins at 0; a ratio, a delay and a number among MODCODs have no such end.
      scales: { x: { time: false }, y: panel.from_zero ? { range: (_, min, max) => [0, max > 0 ? 1.05 * max : 1] } : {} },
      legend: { markers: { dash: (plot, index) => (plot.series[index].dash ? "dashed" : "solid") } },
      cursor: { sync: { key: `terminal-${number}` } },
      series: [{ label: "time (s)", value: (_, t) => (t == null ? "" : t.toFixed(2)) }, ...series],
      axes: [{ ...axis, values: (_, ticks) => ticks.map((t) => `${t} s`) }, { ...axis, size: 60 }],
      hooks: { setScale: [(plot, key) => key === "x" && zoom(plot)] },
    };
  };
  const draw = () => {
    plots.forEach(([plot]) => plot.destroy());
    plots = [];
    for (const place of places) {
      const group = uPlot.sync(`terminal-${place.number}`);
      const data = [place.terminal.t, ...place.panel.curves.map((curve) => curve.y)];
      const plot = new uPlot(options(place, group), data, place.holder);
      group.sub(plot);
      plots.push([plot, place.holder]);
    }
  };
  draw();
  addEventListener("resize", () => plots.forEach(([plot, holder]) => plot.setSize(size(holder))));
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", draw);
})();
