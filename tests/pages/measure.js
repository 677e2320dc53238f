// What can be measured of a page without eyes. Lengths are in CSS pixels.
(() => {
  const FIRST = {width: 900, height: 700};
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});

  // A colour as the browser paints it: red, green, blue (0 to 255) and alpha (0 to 1).
  const painted = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (front, back) => [0, 1, 2].map((i) => front[i] * front[3] + back[i] * (1 - front[3])).concat(1);
  const background = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      layers.push(painted(getComputedStyle(one).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    const page = matchMedia("(prefers-color-scheme: dark)").matches
      && getComputedStyle(document.documentElement).colorScheme.includes("dark") ? [18, 18, 18, 1] : [255, 255, 255, 1];
    return layers.reverse().reduce((back, layer) => over(layer, back), page);
  };
  // WCAG 2: relative luminance, and the ratio of two.
  const luminance = (colour) => {
    const [red, green, blue] = colour.slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ratio = (one, other) => {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const named = (element) => {
    const kind = typeof element.className === "string" && element.className ? `.${element.className.split(" ")[0]}` : "";
    return `${element.tagName.toLowerCase()}${kind}: ${(element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 60)}`;
  };

  const block = (element) => {
    let one = element;
    while (one.parentElement && getComputedStyle(one).display.startsWith("inline")) one = one.parentElement;
    return one;
  };

  let last = null;
  const first = [], faint = [], wide = [], cut = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement, style = getComputedStyle(element);
    if (!node.data.trim() || style.visibility === "hidden") continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()].filter((box) => box.width > 0 && box.height > 0);
    if (!boxes.length) continue;
    const seen = (box) => box.top >= 0 && box.left >= 0 && box.bottom <= FIRST.height && box.right <= FIRST.width;
    if (boxes.every(seen)) {
      const own = block(element);
      first.push(own === last ? node.data : ` ${node.data}`);
      last = own;
    }
    let opacity = 1;
    for (let one = element; one; one = one.parentElement) opacity *= Number(getComputedStyle(one).opacity);
    const back = background(element);
    const ink = painted(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    ink[3] *= opacity;
    const contrast = ratio(over(ink, back), back);
    if (contrast < 4.5) faint.push({what: named(element), contrast: Math.round(contrast * 100) / 100});
  }
  // Who is wider than the window, unless something around it scrolls.
  const scrolls = (element) => {
    for (let one = element.parentElement; one && one !== document.body; one = one.parentElement) {
      if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(one).overflowX)) return true;
    }
    return false;
  };
  for (const element of document.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect();
    if (box.width && box.right > document.documentElement.clientWidth + 1 && !scrolls(element)) wide.push(named(element));
    // What is there for screen readers alone is clipped to a dot.
    if (element.clientWidth > 1 && element.scrollWidth > element.clientWidth + 1
        && getComputedStyle(element).overflowX !== "visible") cut.push(named(element));
  }
  return {
    first: first.join("").replace(/\s+/g, " "),
    faint, wide, cut,
    width: Math.max(document.documentElement.scrollWidth, document.body.scrollWidth),
    window: document.documentElement.clientWidth,
  };
})()
