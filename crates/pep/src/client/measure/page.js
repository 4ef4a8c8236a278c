'use strict';
// Draws the pairs in #data, in the colours of the day or of the night.
(() => {
  const curves = JSON.parse(document.getElementById('data').textContent);
  const holder = document.getElementById('pairs');
  const colours = ['received', 'sent', 'rtt', 'text'];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const number = (_, value) => (value == null ? '–' : value.toFixed(2));
  const pairs = Math.max(...curves.map(({ ratios }) => ratios.length));
  const places = Array.from({ length: pairs }, (_, index) => index + 1);
  const column = ({ ratios }) => places.map((_, index) => ratios[index] ?? null);
  const size = () => ({ width: holder.clientWidth, height: holder.clientWidth < 600 ? 240 : 320 });
  // Twice as fast is as far from 1 as half as fast.
  const power = (value, round) => 2 ** round(Math.log2(value));
  const range = (_, low, high) => [Math.min(0.5, power(low, Math.floor)), Math.max(2, power(high, Math.ceil))];

  function options() {
    const axis = { stroke: colour('quiet'), grid: { stroke: colour('line'), width: 1 }, ticks: { stroke: colour('line'), width: 1 } };
    const dots = ({ name }, index) => {
      const stroke = colour(colours[index]);
      return { label: name, stroke, width: 1, value: number, points: { show: true, size: 8, fill: stroke } };
    };
    return {
      ...size(),
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: false, range: [0.5, pairs + 0.5] }, y: { distr: 3, log: 2, range } },
      axes: [
        { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 1000], values: (_, ticks) => ticks.map((tick) => `pair ${tick}`) },
        { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => (tick == null ? '' : tick < 1 ? `1/${1 / tick}` : String(tick))) },
      ],
      series: [
        { label: 'Pair', value: (_, value) => value ?? '–' },
        { label: 'equally fast', stroke: colour('quiet'), width: 2, dash: [6, 4], value: number, points: { show: false } },
        ...curves.map(dots),
      ],
    };
  }

  let plot;
  function draw() {
    plot?.destroy();
    plot = new uPlot(options(), [places, places.map(() => 1), ...curves.map(column)], holder);
  }
  draw();
  new ResizeObserver(() => plot.setSize(size())).observe(holder);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
})();
