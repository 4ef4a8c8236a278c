// Looks at a page of the lab's as people do: on a desk by day and by night, on a phone, on paper.
//
//   node shots.cjs TOOLS CHROMIUM DIRECTORY PAGE…
//
// Of each page NAME.html it makes NAME.png (all of it, as it opens), NAME-FIGURE.png and NAME-FIGURE-dark.png (each figure, unfolded),
// NAME-phone.png (unfolded) and NAME.pdf, and writes NAME.json: the figures with the places of their plots, what is wider than its
// room, the claims in words on the first screen, legends that cannot be read, contrasts, sheets of paper, and what went wrong.
// Legends are hidden in the pictures, so that a colour in a figure is a curve.
'use strict';
const fs = require('fs');
const path = require('path');
const [tools, executablePath, directory, ...pages] = process.argv.slice(2);
const { chromium } = require(require.resolve('playwright-core', { paths: [tools] }));

const wider = () =>
  Math.max(...[document.documentElement, ...document.querySelectorAll('.table')].map((room) => room.scrollWidth - room.clientWidth));
const unfold = () => document.querySelectorAll('details').forEach((one) => (one.open = true));
const lines = () => [...document.querySelectorAll('.headlines tbody tr')].filter((one) => one.getBoundingClientRect().bottom <= innerHeight).length;
const plots = () =>
  [...document.querySelectorAll('.plot')].map((figure) => {
    const [outer, plot] = [figure, figure.querySelector('.u-over')].map((element) => element?.getBoundingClientRect());
    const place = plot && { x: plot.x - outer.x, y: plot.y - outer.y, width: plot.width, height: plot.height };
    return { id: figure.id, plot: place ?? null };
  });
const legends = () =>
  [...document.querySelectorAll('.plot')].flatMap((figure) => {
    const room = figure.getBoundingClientRect();
    const labels = [...figure.querySelectorAll('.u-legend .u-label')].filter((label) => label.offsetParent);
    const inside = (box) => box.left >= room.left - 1 && box.right <= room.right + 1 && box.bottom <= room.bottom + 1;
    return labels.filter((label) => !label.textContent.trim() || label.textContent.includes('--') || !inside(label.getBoundingClientRect())).map((label) => `${figure.id}: ${label.textContent}`);
  });
const contrast = () => {
  const light = (colour) => {
    const channels = colour.match(/[\d.]+/g).slice(0, 3).map((value) => value / 255);
    const [r, g, b] = channels.map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = light(getComputedStyle(document.body).backgroundColor);
  const bars = [...document.querySelectorAll('.bar i')].map((bar) => light(getComputedStyle(bar).backgroundColor));
  const ratios = bars.map((bar) => (Math.max(bar, ground) + 0.05) / (Math.min(bar, ground) + 0.05));
  return ratios.length ? Math.min(...ratios) : 0;
};

async function open(browser, file, width, height, faults) {
  const page = await browser.newPage({ viewport: { width, height } });
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('request', (request) => request.url().startsWith('file:') || faults.push(`it fetches ${request.url()}`));
  await page.goto(`file://${file}`);
  return page;
}

const hidden = { content: '.u-legend { display: none !important }' };

async function look(browser, file) {
  const at = (name) => path.join(directory, path.basename(file, '.html') + name);
  const faults = [];
  const desk = await open(browser, file, 1280, 800, faults);
  const phone = await open(browser, file, 390, 844, faults);
  const seen = [await desk.evaluate(lines), await phone.evaluate(lines)];
  await desk.screenshot({ path: at('.png'), fullPage: true });
  for (const page of [desk, phone]) await page.evaluate(unfold);
  // What is unfolded is drawn again in its size.
  await desk.waitForTimeout(200);
  const found = { faults, lines: seen, wider: [await desk.evaluate(wider), await phone.evaluate(wider)] };
  found.legends = [...(await desk.evaluate(legends)), ...(await phone.evaluate(legends))];
  found.contrast = [await desk.evaluate(contrast)];
  await desk.emulateMedia({ colorScheme: 'dark' });
  found.contrast.push(await desk.evaluate(contrast));
  await phone.emulateMedia({ colorScheme: 'dark' });
  found.wider = [Math.max(found.wider[0], await desk.evaluate(wider)), Math.max(found.wider[1], await phone.evaluate(wider))];
  await phone.emulateMedia({ colorScheme: 'light' });
  await desk.emulateMedia({ colorScheme: 'light' });
  for (const page of [desk, phone]) await page.addStyleTag(hidden);
  await phone.screenshot({ path: at('-phone.png'), fullPage: true });
  found.figures = await desk.evaluate(plots);
  for (const time of ['', '-dark']) {
    await desk.emulateMedia({ colorScheme: time ? 'dark' : 'light' });
    for (const { id } of found.figures) await desk.locator(`#${id}`).screenshot({ path: at(`-${id}${time}.png`) });
  }
  const paper = await open(browser, file, 1280, 800, faults);
  const pdf = await paper.pdf({ path: at('.pdf'), printBackground: true });
  found.sheets = (pdf.toString('latin1').match(/\/Type \/Page\b/g) ?? []).length;
  fs.writeFileSync(at('.json'), JSON.stringify(found));
}

async function main() {
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
  try {
    for (const page of pages) await look(browser, page);
  } finally {
    await browser.close();
  }
}
main().catch((error) => {
  console.error(error);
  process.exit(1);
});
