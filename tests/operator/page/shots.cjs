// Looks at a page as people do: at a desk and on a phone, in light and in dark.
//
//   node shots.cjs TOOLS CHROMIUM DIRECTORY JOB
//
// JOB is {"name": …, "url": …, "loses": whether the daemon goes while it is looked at}. Makes NAME-WIDTH-SCHEME.png of all of it
// and NAME.json: for each view what it says, how far it is wider than the screen, how many pixels its curves have, and what
// went wrong. A page that is to lose its daemon is looked at once NAME.open says so, and then when it tells of the loss.
'use strict';
const fs = require('fs');
const path = require('path');
const [tools, executablePath, directory, job] = process.argv.slice(2);
const { chromium } = require(require.resolve('playwright-core', { paths: [tools] }));
const { name, url, loses } = JSON.parse(job);
const at = (end) => path.join(directory, name + end);

const VIEWS = [1280, 390].flatMap((width) => ['light', 'dark'].map((colorScheme) => ({ width, colorScheme })));

// In the page: everything that is seen on it.
function look() {
  const root = document.documentElement;
  const shown = (selector) => {
    const element = document.querySelector(selector);
    return element && !element.hidden ? element.innerText : '';
  };
  // What keeps figures and their units in one line is read as what it looks like.
  const plain = (text) => text.replaceAll('\u00a0', ' ').replaceAll('\u2011', '-');
  const drawn = (canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let coloured = 0;
    for (let i = 0; i < data.length; i += 4) {
      const [r, g, b, a] = data.subarray(i, i + 4);
      if (a > 200 && Math.max(r, g, b) - Math.min(r, g, b) > 60) coloured += 1;
    }
    return coloured;
  };
  return {
    wider: root.scrollWidth - root.clientWidth,
    state: shown('#state'),
    where: shown('#where'),
    fault: shown('#fault'),
    lost: shown('#lost'),
    tiles: [...document.querySelectorAll('.tile')].map((tile) => plain(tile.innerText).split('\n').filter(Boolean)),
    clients: [...document.querySelectorAll('#clients tr')].map((row) => [...row.cells].map((cell) => cell.innerText)),
    events: [...document.querySelectorAll('#events li')].map((item) => item.innerText),
    curves: [...document.querySelectorAll('.plot canvas')].map(drawn),
    ground: getComputedStyle(document.body).backgroundColor,
  };
}

async function view(browser, { width, colorScheme }) {
  const faults = [];
  const context = await browser.newContext({ viewport: { width, height: 844 }, colorScheme });
  const page = await context.newPage();
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('console', (line) => /Content.Security.Policy/i.test(line.text()) && faults.push(line.text()));
  // A file is itself all that it needs.
  const own = url.startsWith('file:') ? url : new URL(url).origin;
  page.on('request', (request) => request.url().startsWith(own) || faults.push(`it fetches ${request.url()}`));
  await page.goto(url);
  await page.waitForSelector('.tile, #token, .plot canvas', { timeout: 20000 });
  return { page, faults, width, colorScheme };
}

async function main() {
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
  try {
    const views = [];
    for (const one of VIEWS) views.push(await view(browser, one));
    if (loses) {
      fs.writeFileSync(at('.open'), '');
      for (const { page } of views) await page.waitForSelector('#lost:not([hidden])', { timeout: 30000 });
    } else {
      // Samples that come while it is open are drawn as well.
      await views[0].page.waitForTimeout(2500);
    }
    const seen = [];
    for (const { page, faults, width, colorScheme } of views) {
      await page.screenshot({ path: at(`-${width}-${colorScheme}.png`), fullPage: true });
      seen.push({ width, scheme: colorScheme, faults, ...(await page.evaluate(look)) });
    }
    fs.writeFileSync(at('.json'), JSON.stringify(seen));
  } finally {
    await browser.close();
  }
}
main().catch((error) => {
  console.error(error);
  process.exit(1);
});
