// Looks at a page of the lab's as people do: on a desk, on a phone, on paper.
//
//   node shots.cjs TOOLS CHROMIUM DIRECTORY PAGE…
//
// Of each page NAME.html it makes NAME.png (all of it), NAME-FIGURE.png (each figure), NAME-phone.png and NAME.pdf, and writes
// NAME.json: the figures with the places of their plots, how far the page is wider than the screen, and what went wrong in it.
// Legends are hidden, so that a colour in a figure is a curve.
'use strict';
const fs = require('fs');
const path = require('path');
const [tools, executablePath, directory, ...pages] = process.argv.slice(2);
const { chromium } = require(require.resolve('playwright-core', { paths: [tools] }));

const wider = () => document.documentElement.scrollWidth - document.documentElement.clientWidth;
const plots = () =>
  [...document.querySelectorAll('.plot')].map((figure) => {
    const [outer, plot] = [figure, figure.querySelector('.u-over')].map((element) => element?.getBoundingClientRect());
    const place = plot && { x: plot.x - outer.x, y: plot.y - outer.y, width: plot.width, height: plot.height };
    return { id: figure.id, plot: place ?? null };
  });

async function open(browser, file, width, faults) {
  const page = await browser.newPage({ viewport: { width, height: 844 } });
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('request', (request) => request.url().startsWith('file:') || faults.push(`it fetches ${request.url()}`));
  await page.goto(`file://${file}`);
  await page.addStyleTag({ content: '.u-legend { display: none !important }' });
  return page;
}

async function look(browser, file) {
  const at = (name) => path.join(directory, path.basename(file, '.html') + name);
  const faults = [];
  const desk = await open(browser, file, 1000, faults);
  await desk.screenshot({ path: at('.png'), fullPage: true });
  const figures = await desk.evaluate(plots);
  for (const { id } of figures) await desk.locator(`#${id}`).screenshot({ path: at(`-${id}.png`) });
  await desk.pdf({ path: at('.pdf'), printBackground: true });
  const phone = await open(browser, file, 390, faults);
  await phone.screenshot({ path: at('-phone.png'), fullPage: true });
  const found = { figures, faults, wider: [await desk.evaluate(wider), await phone.evaluate(wider)] };
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
