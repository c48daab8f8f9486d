"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const number = new Intl.NumberFormat("en");
  const state = { step: 0, part: "", run: 0, tick: 0, playing: !still };
  let scene = null; // what is drawn now: decoded streams and grids
  let palette = null;

  const make = (tag, className, text) => {
    const e = document.createElement(tag);
    if (className) e.className = className;
    if (text !== undefined) e.textContent = text;
    return e;
  };

  // -- programs -----------------------------------------------------------------------------------
  const WORD = /(#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(\b(?:for|in|with|if|else|elif|while|def|class|return|and|or|not|as|None|True|False)\b)|(T\.(?:parallel|vectorized|unroll|thread_binding)\b)|(\b[TI](?:\.\w+)+|@[\w.]+|\b(?:range|sch)\b(?:\.\w+)?)|(\b\d[\w.]*)/gm;
  const CLASS = ["c", "s", "k", "x", "f", "n"];

  function coloured(target, text, marks = [], shift = 0) {
    const pieces = [];
    let at = 0;
    for (const m of text.matchAll(WORD)) {
      if (m.index > at) pieces.push([at, m.index, ""]);
      pieces.push([m.index, m.index + m[0].length, CLASS[m.slice(1).findIndex((x) => x !== undefined)]]);
      at = m.index + m[0].length;
    }
    if (at < text.length) pieces.push([at, text.length, ""]);
    for (const [start, end, cls] of pieces) {
      const cuts = new Set([start, end]);
      for (const [a, b] of marks) for (const x of [a - shift, b - shift]) if (x > start && x < end) cuts.add(x);
      const points = [...cuts].sort((a, b) => a - b);
      for (let i = 0; i + 1 < points.length; i++) {
        const inside = marks.some(([a, b]) => a - shift <= points[i] && points[i + 1] <= b - shift);
        const span = make("span", cls, text.slice(points[i], points[i + 1]));
        if (inside) {
          const mark = make("mark");
          mark.append(span);
          target.append(mark);
        } else target.append(span);
      }
    }
  }

  function showCode(step) {
    const box = $("code");
    box.replaceChildren();
    let line = 0;
    for (const [sign, text, marks] of step.lines) {
      const bare = text.trimStart();
      const indent = text.length - bare.length;
      const row = make("div", "l" + ({ "+": " add", "~": " chg", "-": " del" }[sign] || "") + (bare ? "" : " blank"));
      row.style.setProperty("--i", indent);
      if (sign !== "-") row.dataset.line = line++;
      coloured(row, bare, marks, indent);
      box.append(row);
    }
  }

  function showCall(step, number_) {
    const calls = step.calls;
    $("number").textContent = number_;
    $("count").textContent = "/ " + (data.steps.length - 1);
    const last = number_ === 0 ? null : calls[changingCall(step)];
    $("earlier").textContent = calls.filter((c) => c !== last).map((c) => c.text).join("   ");
    const target = $("call");
    target.replaceChildren();
    target.classList.toggle("plain", !last);
    if (last) coloured(target, last.text);
    else target.textContent = "The program as given";
    const known = last && last.place;
    $("place").textContent = known ? last.place : "";
    $("source").replaceChildren();
    if (known && last.source) coloured($("source"), last.source);
  }
  const changingCall = (step) => {
    const found = step.calls.map((c) => c.text.includes("sch." + step.title + "(")).lastIndexOf(true);
    return found < 0 ? step.calls.length - 1 : found;
  };

  // -- runs ---------------------------------------------------------------------------------------
  function decode(runs) {
    let n = runs.length ? 1 : 0;
    for (let i = 2; i < runs.length; i += 2) n += runs[i];
    const out = new Int32Array(n);
    if (!n) return out;
    let value = (out[0] = runs[0]), at = 1;
    for (let i = 1; i < runs.length; i += 2) for (let k = runs[i + 1]; k > 0; k--) out[at++] = value += runs[i];
    return out;
  }

  const COLS = { r: 1, w: 2, v: 4 };
  function load(run) {
    const patterns = run.patterns;
    let workers = 1;
    const count = (t, w) => {
      const own = w * (t.w || 1);
      workers = Math.max(workers, own);
      (t.p || []).forEach((p) => count(p, own));
    };
    count(run.tree, 1);
    const grids = run.grids.map((g) => {
      const n = g.tiles * g.rows * g.cols;
      return { ...g, n, gap: g.tiles > 32 ? 2 : 6, streams: [], last: new Int32Array(n), who: new Int8Array(n), mode: new Uint8Array(n), first: null };
    });
    for (const s of run.streams) {
      const ticks = decode(s.t), index = new Int32Array(run.ticks).fill(-1);
      ticks.forEach((t, i) => (index[t] = i));
      grids[s.g].streams.push({ mode: COLS[s.m], index, p: decode(s.p), o: decode(s.o) });
    }
    for (const g of grids) {
      g.streams.sort((a, b) => a.mode - b.mode);
      if (!g.axes) continue;
      g.first = new Int32Array(g.n).fill(-1);
      g.latest = 1;
      for (let t = 0; t < run.ticks; t++) {
        touched(patterns, g.streams[0], t, (c) => {
          if (g.first[c] < 0) { g.first[c] = t; g.latest = Math.max(g.latest, t); }
        });
      }
      const times = [...new Set(g.first)].filter((t) => t >= 0).sort((a, b) => a - b);
      g.rank = new Map(times.map((t, i) => [t, i]));
    }
    return { run, patterns, grids, workers, at: -1 };
  }

  function touched(patterns, stream, tick, f) {
    const i = stream.index[tick];
    if (i < 0) return;
    const p = patterns[stream.p[i]], base = stream.o[i];
    for (let k = 0; k < p.length; k += 3) for (let c = base + p[k], end = c + p[k + 1]; c < end; c++) f(c, p[k + 2]);
  }

  function advance(s, tick) {
    if (tick < s.at || s.at < 0) {
      for (const g of s.grids) { g.last.fill(-1); g.mode.fill(0); }
      s.at = -1;
    }
    for (let t = s.at + 1; t <= tick; t++) {
      for (const g of s.grids) {
        for (const stream of g.streams) {
          touched(s.patterns, stream, t, (c, w) => {
            if (g.last[c] !== t) { g.last[c] = t; g.mode[c] = 0; g.who[c] = w; }
            else if (g.who[c] !== w) g.who[c] = -1;
            g.mode[c] |= stream.mode;
          });
        }
      }
    }
    s.at = tick;
  }

  // -- colours ------------------------------------------------------------------------------------
  function rgb(css) {
    const c = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
    c.fillStyle = css;
    c.fillRect(0, 0, 1, 1);
    return [...c.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  }
  const HUES = [255, 50, 150, 320, 90, 195, 285, 20];
  function colours() {
    const style = getComputedStyle(document.documentElement);
    const named = (n) => rgb(style.getPropertyValue("--" + n).trim());
    const dark = document.documentElement.dataset.theme === "dark";
    palette = Object.fromEntries(["cell", "read", "write", "shared", "first", "last", "ink", "rule", "accent"].map((n) => [n, named(n)]));
    palette.workers = HUES.map((h) => rgb(`oklch(${dark ? 0.74 : 0.62} 0.17 ${h})`));
  }
  const mix = (a, b, t) => [0, 1, 2].map((i) => Math.round(a[i] + (b[i] - a[i]) * t));
  const css = (c) => `rgb(${c[0]} ${c[1]} ${c[2]})`;
  const hue = (w) => (w < 0 ? palette.shared : palette.workers[w % palette.workers.length]);
  const colourOf = (s, mode, who) => (s.workers > 1 ? hue(who) : mode & 2 ? palette.write : palette.read);

  // -- grids --------------------------------------------------------------------------------------
  const PAD = 8; // around a grid, for rings
  function place(g, width) {
    const dpr = window.devicePixelRatio || 1;
    const down = Math.ceil(g.tiles / g.across);
    const columns = g.across * g.cols, rows = down * g.rows;
    const room = width - (g.across - 1) * g.gap;
    const tall = width * 1.35 - (down - 1) * g.gap;
    let cell = Math.floor(Math.min(room / columns, rows === 1 ? 22 : tall / rows) * dpr) / dpr;
    cell = Math.max(1 / dpr, Math.min(cell, 22));
    g.cell = cell;
    g.width = columns * cell + (g.across - 1) * g.gap;
    g.height = rows * cell + (down - 1) * g.gap;
    const c = g.canvas;
    c.width = Math.round((g.width + 2 * PAD) * dpr);
    c.height = Math.round((g.height + 2 * PAD) * dpr);
    c.style.width = c.width / dpr + "px";
    c.style.height = c.height / dpr + "px";
    c.style.margin = -PAD + "px";
    g.dpr = dpr;
    g.image = new ImageData(g.cols, g.rows * g.tiles);
    g.off = Object.assign(document.createElement("canvas"), { width: g.cols, height: g.rows * g.tiles });
  }
  const spot = (g, c) => { // the middle of a cell
    const tile = Math.floor(c / (g.rows * g.cols)), inside = c % (g.rows * g.cols);
    const x = (tile % g.across) * (g.cols * g.cell + g.gap) + (inside % g.cols) * g.cell;
    const y = Math.floor(tile / g.across) * (g.rows * g.cell + g.gap) + Math.floor(inside / g.cols) * g.cell;
    return [x, y];
  };

  function draw(s, g, tick) {
    const ctx = g.canvas.getContext("2d"), px = g.image.data;
    const fade = Math.max(10, Math.min(160, s.run.ticks / 24));
    const shown = g.cells.reduce((a, b) => a * b, 1);
    for (let c = 0; c < g.n; c++) {
      let colour = palette.cell, alpha = 255;
      if (c >= shown) alpha = 0;
      else if (g.first) {
        if (g.first[c] >= 0) {
          colour = mix(palette.first, palette.last, g.first[c] / g.latest);
          if (g.first[c] > tick) colour = mix(palette.cell, colour, 0.3);
        }
      } else if (g.last[c] >= 0) {
        const age = tick - g.last[c];
        const strength = age === 0 ? 1 : 0.16 + 0.6 * Math.exp(-age / fade);
        colour = mix(palette.cell, colourOf(s, g.mode[c], g.who[c]), strength);
      }
      px[4 * c] = colour[0]; px[4 * c + 1] = colour[1]; px[4 * c + 2] = colour[2]; px[4 * c + 3] = alpha;
    }
    g.off.getContext("2d").putImageData(g.image, 0, 0);
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, g.canvas.width, g.canvas.height);
    ctx.setTransform(g.dpr, 0, 0, g.dpr, PAD * g.dpr, PAD * g.dpr);
    ctx.imageSmoothingEnabled = false;
    const w = g.cols * g.cell, h = g.rows * g.cell;
    for (let t = 0; t < g.tiles; t++) {
      const [x, y] = spot(g, t * g.rows * g.cols);
      ctx.drawImage(g.off, 0, t * g.rows, g.cols, g.rows, x, y, w, h);
      rules(ctx, g, x, y, w, h);
    }
    if (g.first) trail(ctx, s, g, tick);
    current(ctx, s, g, tick);
  }

  function rules(ctx, g, x, y, w, h) {
    const px = g.image.data;
    ctx.fillStyle = css(palette.rule);
    const every = g.cell >= 5 ? 1 : 8;
    ctx.globalAlpha = every === 1 ? 1 : 0.55;
    for (let i = every; i < g.cols; i += every) ctx.fillRect(x + i * g.cell - 0.5, y, every === 1 ? 1 : 0.75, h);
    for (let i = every; i < g.rows; i += every) ctx.fillRect(x, y + i * g.cell - 0.5, w, every === 1 ? 1 : 0.75);
    ctx.globalAlpha = 1;
    if (!g.first || g.cell < 17 || g.rank.size > 1000) return;
    ctx.font = `${Math.min(10, g.cell * 0.45)}px ui-monospace, monospace`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    const base = Math.round(y / (h + g.gap)) * g.across + Math.round(x / (w + g.gap));
    for (let c = 0; c < g.rows * g.cols; c++) {
      const when = g.first[base * g.rows * g.cols + c];
      if (when < 0) continue;
      const p = 4 * (base * g.rows * g.cols + c), light = px[p] * 0.3 + px[p + 1] * 0.6 + px[p + 2] * 0.1 > 128;
      ctx.fillStyle = light ? "rgb(0 0 0 / 62%)" : "rgb(255 255 255 / 78%)";
      ctx.fillText(g.rank.get(when), x + ((c % g.cols) + 0.5) * g.cell, y + (Math.floor(c / g.cols) + 0.5) * g.cell);
    }
  }

  function centres(s, g, tick) {
    const sums = new Map();
    touched(s.patterns, g.streams[0], tick, (c, w) => {
      const [x, y] = spot(g, c), sum = sums.get(w) || [0, 0, 0];
      sums.set(w, [sum[0] + x + g.cell / 2, sum[1] + y + g.cell / 2, sum[2] + 1]);
    });
    return sums;
  }

  function trail(ctx, s, g, tick) {
    const length = 26;
    let before = new Map();
    ctx.lineWidth = 1.6;
    ctx.lineCap = "round";
    for (let t = Math.max(0, tick - length); t <= tick; t++) {
      const here = centres(s, g, t);
      for (const [w, [x, y, n]] of here) {
        const old = before.get(w);
        if (old) {
          ctx.strokeStyle = css(s.workers > 1 ? hue(w) : palette.write);
          ctx.globalAlpha = (g.cell >= 17 ? 0.55 : 0.9) * (1 - (tick - t) / (length + 1));
          ctx.beginPath();
          ctx.moveTo(...old);
          ctx.lineTo(x / n, y / n);
          ctx.stroke();
        }
        before.set(w, [x / n, y / n]);
      }
    }
    ctx.globalAlpha = 1;
  }

  // What is touched at this very step: lanes joined, what is written framed, and a ring where it is too small to see.
  function current(ctx, s, g, tick) {
    for (const stream of g.streams) {
      const i = stream.index[tick];
      if (i < 0) continue;
      const p = s.patterns[stream.p[i]], base = stream.o[i], groups = new Map();
      for (let k = 0; k < p.length; k += 3) {
        const who = p[k + 2];
        ctx.fillStyle = css(g.first ? (s.workers > 1 ? hue(who) : palette.write) : colourOf(s, stream.mode, who));
        for (let c = base + p[k], left = p[k + 1]; left > 0;) {
          const n = Math.min(left, g.cols - (c % g.cols)), [x, y] = spot(g, c);
          ctx.fillRect(x, y, n * g.cell, g.cell);
          const key = who + " " + Math.floor(c / (g.rows * g.cols));
          const box = groups.get(key) || { x, y, right: x, bottom: y, cells: 0, colour: ctx.fillStyle };
          groups.set(key, box);
          box.x = Math.min(box.x, x);
          box.y = Math.min(box.y, y);
          box.right = Math.max(box.right, x + n * g.cell);
          box.bottom = Math.max(box.bottom, y + g.cell);
          box.cells += n;
          c += n;
          left -= n;
        }
      }
      for (const { x, y, right, bottom, cells, colour } of groups.values()) {
        const w = right - x, h = bottom - y;
        if (stream.mode !== 1 && groups.size <= 32 && Math.abs(w * h - cells * g.cell * g.cell) < 0.5) {
          ctx.strokeStyle = css(palette.ink);
          ctx.lineWidth = 1;
          ctx.strokeRect(x - 0.5, y - 0.5, w + 1, h + 1);
        }
        if (w < 7 && h < 7 && groups.size <= 32) {
          ctx.strokeStyle = colour;
          ctx.lineWidth = 1.5;
          ctx.beginPath();
          ctx.arc(x + w / 2, y + h / 2, 7, 0, 7);
          ctx.stroke();
        }
      }
    }
  }

  // The elements that a step touches, as an index: of the first worker where there are several.
  function readout(s, g, tick) {
    const box = g.cells.map(() => [Infinity, -Infinity]);
    let modes = 0, only = null;
    for (const stream of g.streams) {
      touched(s.patterns, stream, tick, (c, w) => {
        modes |= stream.mode;
        if (w >= 0 && only === null) only = w;
        if (w >= 0 && w !== only) return;
        for (let d = g.cells.length - 1; d >= 0; d--) {
          const at = c % g.cells[d];
          c = (c - at) / g.cells[d];
          box[d][0] = Math.min(box[d][0], at);
          box[d][1] = Math.max(box[d][1], at);
        }
      });
    }
    if (!modes) return null;
    const text = box.map(([a, b], d) => {
      const lo = g.start[d] + a * g.scale[d], hi = Math.min(g.shape[d], g.start[d] + (b + 1) * g.scale[d]) - 1;
      return lo === hi ? `${lo}` : `${lo}…${hi}`;
    });
    return [modes, text.join(", "), colourOf(s, modes, only === null ? -1 : only)];
  }

  // -- where in the loops a step is ---------------------------------------------------------------
  function pathTo(t, tick, out) {
    out.push([t, tick]);
    const parts = t.p || [];
    if (t.r === "seq") {
      let at = 0;
      for (const p of parts) {
        if (tick < at + p.d || p === parts[parts.length - 1]) return pathTo(p, tick - at, out);
        at += p.d;
      }
    } else if (parts.length) pathTo(parts[0], t.r === "serial" || t.r === "parallel" ? tick % Math.max(1, parts[0].d) : tick, out);
    return out;
  }

  function showLoops(s, tick, part) {
    const box = $("loops"), path = pathTo(s.run.tree, tick, []);
    const blocks = path.filter(([t]) => t.b && t.b !== "root");
    const loops = path.filter(([t]) => t.v !== undefined && t.n > 1);
    const key = loops.map(([t]) => t.v).join() + "|" + blocks.map(([t]) => t.b).join();
    if (box.dataset.key !== key || box.scene !== s) {
      box.dataset.key = key;
      box.scene = s;
      box.replaceChildren();
      const title = blocks.length ? `Loops around ${blocks[blocks.length - 1][0].b}` : "Loops";
      box.append(make("div", "head", title));
      for (const [t] of loops) {
        const name = make("span", "v", t.v);
        const meter = make("div", "meter");
        box.append(name, meter, make("span", "t"));
      }
    }
    const rows = [...box.children].slice(1);
    loops.forEach(([t, at], i) => meter(rows[3 * i + 1], rows[3 * i + 2], s, t, at));
    const live = new Set(blocks.slice(-1).map(([t]) => part.lines[t.at]));
    document.querySelectorAll("#code .l.live").forEach((e) => live.has(+e.dataset.line) || e.classList.remove("live"));
    live.forEach((n) => { const e = document.querySelector(`#code .l[data-line="${n}"]`); if (e) e.classList.add("live"); });
  }

  function meter(bar, text, s, t, tick) {
    const body = t.p && t.p[0] ? Math.max(1, t.p[0].d) : 1;
    const index = Math.min(t.c - 1, Math.floor(tick / body));
    const pieces = [];
    const all = t.r === "lanes" || t.r === "unrolled" || t.r === "inner";
    const colour = css(palette.accent);
    if (all) pieces.push([0, 1, colour, ""]);
    else if (t.r === "parallel") {
      for (let w = 0; w < t.w; w++) {
        const start = w * t.c;
        if (start + index >= t.n) continue;
        if (index) pieces.push([start / t.n, index / t.n, css(hue(w)), "past"]);
        pieces.push([(start + index) / t.n, 1 / t.n, css(hue(w)), ""]);
      }
    } else {
      if (index) pieces.push([0, index / t.n, colour, "past"]);
      pieces.push([index / t.n, 1 / t.n, colour, ""]);
    }
    while (bar.children.length < pieces.length) bar.append(make("i"));
    while (bar.children.length > pieces.length) bar.lastChild.remove();
    pieces.forEach(([left, width, c, cls], i) => {
      const e = bar.children[i];
      e.className = cls;
      e.style.left = left * 100 + "%";
      e.style.width = width * 100 + "%";
      e.style.background = c;
    });
    const kind = t.k ? ` ${t.k}` : "";
    text.replaceChildren();
    if (all) {
      text.append(t.r === "inner" ? `${number.format(t.n)} as one step` : `${number.format(t.n)} at once`, kind && ` ·${kind}`);
    } else if (t.r === "parallel") {
      text.append(`${t.w} workers`, t.c > 1 ? ` × ${t.c}` : "", kind && ` ·${kind}`);
    } else text.append(make("b", "", number.format(index)), ` of ${number.format(t.n)}`, kind && ` ·${kind}`);
  }

  // -- putting it on the page ---------------------------------------------------------------------
  function figure(g) {
    const f = make("figure"), caption = make("figcaption");
    if (g.axes) {
      caption.append(make("span", "", "Order of "), make("b", "", g.name));
      const [down, across] = g.axes.length > 1 ? g.axes : ["", g.axes[0]];
      caption.append(make("span", "muted", down ? `  ${down} ↓ ${across} →` : `  ${across} →`));
    } else {
      caption.append(make("b", "", g.name), make("span", "muted", `  ${g.shape.join(" × ")} ${g.dtype}` + (g.scope === "global" ? "" : ` · ${g.scope}`)));
    }
    g.canvas = make("canvas");
    g.canvas.setAttribute("role", "img");
    g.canvas.setAttribute("aria-label", g.axes ? `Order of iterations of ${g.name}` : `Elements of ${g.name}`);
    g.canvas.dataset.grid = g.axes ? "order " + g.name : g.name;
    g.text = make("div", "now");
    f.append(caption, g.canvas);
    if (!g.axes) f.append(g.text);
    if (g.note) f.append(make("div", "hint", g.note));
    g.figure = f;
    return f;
  }

  function layout() {
    if (!scene) return;
    const wide = $("grids").clientWidth;
    const buffers = scene.grids.filter((g) => !g.axes);
    const per = wide < 420 ? 2 : 3;
    const several = scene.grids.length - buffers.length > 1;
    const size = Math.floor((wide - (per - 1) * 18) / per);
    for (const g of scene.grids) {
      const line = g.tiles * g.rows === 1 && g.cols > 8;
      place(g, line ? Math.min(wide, g.cols * 22) : g.axes && several ? Math.floor(size * 0.74) : size);
      g.figure.style.width = Math.max(g.axes ? 150 : Math.min(size, 240), g.width) + "px";
    }
  }

  function legend() {
    const box = $("legend");
    box.replaceChildren();
    const entry = (colour, text, cls = "") => {
      const e = make("span"), i = make("i", cls);
      i.style.background = colour;
      e.append(i, text);
      box.append(e);
    };
    if (scene.workers > 1) {
      const all = make("span"), row = make("span", "row");
      for (let w = 0; w < Math.min(scene.workers, 8); w++) row.append(make("i"));
      [...row.children].forEach((e, w) => (e.style.background = css(hue(w))));
      all.append(row, `workers 0–${scene.workers - 1}`);
      box.append(all);
      entry(css(palette.shared), "shared");
      box.append(make("span", "", "framed: written"));
    } else {
      entry(css(palette.read), "read");
      entry(css(palette.write), "written");
    }
    if (scene.grids.some((g) => g.axes)) entry(`linear-gradient(90deg, ${css(palette.first)}, ${css(palette.last)})`, "first → last", "ramp");
    box.append(make("span", "", "fading: earlier"));
  }

  const speed = () => Math.pow(10, $("speed").value / 100 * 3.2); // 1 to about 1,600 steps a second
  let chosenSpeed = false;
  function setSpeed(perSecond) {
    $("speed").value = Math.max(0, Math.min(100, (Math.log10(perSecond) / 3.2) * 100));
    fill($("speed"));
  }
  function fill(input) {
    const span = input.max - input.min || 1, at = ((input.value - input.min) / span) * 100;
    input.style.setProperty("--track", `linear-gradient(90deg, var(--accent) ${at}%, var(--line) ${at}%)`);
  }

  function chips(box, names, chosen, pick) {
    box.replaceChildren();
    names.forEach((name, i) => {
      const b = make("button", "", name);
      b.type = "button";
      b.setAttribute("aria-pressed", i === chosen);
      b.addEventListener("click", () => pick(i));
      box.append(b);
    });
  }

  function currentPart() {
    const parts = data.steps[state.step].parts;
    return parts.find((p) => p.title === state.part) || parts[0];
  }

  function showScene(fraction) {
    const parts = data.steps[state.step].parts, part = currentPart();
    chips($("parts"), parts.map((p) => p.title), parts.indexOf(part), (i) => { state.part = parts[i].title; showScene(0); });
    if (!part) {
      scene = null;
      $("grids").replaceChildren(make("p", "muted", "Nothing to draw: this program touches no buffer."));
      for (const id of ["spaces", "loops", "legend", "runs"]) $(id).replaceChildren();
      return;
    }
    const runs = data.scenes[part.scene].runs;
    state.run = Math.min(state.run, runs.length - 1);
    chips($("runs"), runs.map((r) => r.label), state.run, (i) => { state.run = i; showScene(0); });
    const run = runs[state.run];
    scene = load(run);
    $("note").textContent = run.note;
    $("position").max = run.ticks - 1;
    state.tick = Math.round(fraction * (run.ticks - 1));
    $("spaces").replaceChildren(...scene.grids.filter((g) => g.axes).slice(0, 2).map(figure));
    $("grids").replaceChildren(...scene.grids.filter((g) => !g.axes).map(figure));
    scene.grids = scene.grids.filter((g) => g.figure);
    if (!chosenSpeed) setSpeed(Math.max(3, Math.min(900, run.ticks / 16)));
    layout();
    legend();
    render();
  }

  function render() {
    if (!scene) return;
    const tick = state.tick, total = scene.run.ticks;
    advance(scene, tick);
    for (const g of scene.grids) {
      draw(scene, g, tick);
      const read = readout(scene, g, tick);
      g.text.replaceChildren();
      if (read) {
        const verb = make("b", "", read[0] & 2 ? "writes" : "reads");
        verb.style.color = css(read[2]);
        g.text.append(verb, ` [${read[1]}]`);
      }
    }
    $("position").value = tick;
    fill($("position"));
    $("where").textContent = `${number.format(tick + 1)} of ${number.format(total)}`;
    showLoops(scene, tick, currentPart());
  }

  function showStep(n) {
    const before = state.step;
    state.step = Math.max(0, Math.min(data.steps.length - 1, n));
    const step = data.steps[state.step];
    $("step").value = state.step;
    fill($("step"));
    [...$("labels").children].forEach((e, i) => {
      e.classList.toggle("now", i === state.step);
      e.classList.toggle("past", i < state.step);
    });
    showCall(step, state.step);
    showCode(step);
    const done = scene && state.tick >= scene.run.ticks - 1;
    const fraction = scene && !state.playing && !done ? state.tick / Math.max(1, scene.run.ticks - 1) : 0;
    if (done && before !== state.step && !still && started) setPlaying(true);
    showScene(fraction);
  }

  // -- playing ------------------------------------------------------------------------------------
  let then = 0, owed = 0, started = false;
  function setPlaying(on) {
    state.playing = on;
    $("play").textContent = on ? "❚❚" : "▶";
    $("play").setAttribute("aria-pressed", on);
    if (on) {
      started = true;
      if (scene && state.tick >= scene.run.ticks - 1) state.tick = 0;
      then = 0;
      owed = 0;
      requestAnimationFrame(frame);
    }
  }
  function frame(now) {
    if (!state.playing || !scene) return;
    owed += then ? Math.min(0.2, (now - then) / 1000) * speed() : 0;
    then = now;
    const whole = Math.floor(owed);
    if (whole > 0) {
      owed -= whole;
      state.tick = Math.min(scene.run.ticks - 1, state.tick + whole);
      render();
      if (state.tick >= scene.run.ticks - 1) return setPlaying(false);
    }
    requestAnimationFrame(frame);
  }
  function seek(tick) {
    if (!scene) return;
    setPlaying(false);
    state.tick = Math.max(0, Math.min(scene.run.ticks - 1, tick));
    render();
  }

  // -- the rest of the page -----------------------------------------------------------------------
  function theme(name) {
    document.documentElement.dataset.theme = name;
    colours();
    if (scene) { legend(); render(); }
  }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", (e) => theme(e.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

  const last = data.steps.length - 1;
  document.title = `${data.name}: schedule report`;
  $("name").textContent = data.name;
  $("summary").textContent = last === 1 ? "schedule of 1 step" : `schedule of ${last} steps`;
  $("step").max = last;
  $("labels").classList.toggle("many", last > 13);
  data.steps.forEach((s, i) => {
    const b = make("button", "", s.title);
    b.type = "button";
    b.tabIndex = -1;
    b.style.left = last ? `calc(8px + (100% - 16px) * ${i / last})` : "8px";
    b.addEventListener("click", () => showStep(i));
    $("labels").append(b);
  });
  $("step").addEventListener("input", (e) => showStep(+e.target.value));
  $("position").addEventListener("input", (e) => seek(+e.target.value));
  $("speed").addEventListener("input", (e) => { chosenSpeed = true; fill(e.target); });
  $("play").addEventListener("click", () => setPlaying(!state.playing));
  $("removed").addEventListener("change", (e) => $("code").classList.toggle("removed", e.target.checked));
  addEventListener("resize", () => { layout(); render(); });
  addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const other = e.target.type === "range" && e.target.id !== "step";
    if ((e.key === "ArrowRight" || e.key === "ArrowLeft") && !other) {
      showStep(state.step + (e.key === "ArrowRight" ? 1 : -1));
    } else if (e.key === " " && e.target.tagName !== "BUTTON" && e.target.type !== "checkbox") setPlaying(!state.playing);
    else if (e.key === "," || e.key === ".") seek(state.tick + (e.key === "." ? 1 : -1));
    else return;
    e.preventDefault();
  });
  showStep(0);
  setPlaying(state.playing);
})();
