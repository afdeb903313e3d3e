"""Pictures of blocks and of who is let in."""

from hack.pictures.canvas import AMBER, BLUE, GREY, INK, QUIET, ROSE, TEAL, Canvas, Words

_SIZE, _GAP = 22, 28
_MAP = "SSSAAABBBBCCCC........"
_COLOURS = {"S": ROSE, "A": TEAL, "B": BLUE, "C": AMBER}


def blocks(language: int) -> str:
    """Two tables over one pool; what is shared, cached, free and reserved."""
    title = Words(
        "KV blocks: tables of two requests over one pool", "KV 块：两个请求的块表与同一个块池"
    )
    sheet = Canvas(720, 300, language, title)
    tables = (
        (30, Words("request A, 96 tokens", "请求 A，96 个 token"), "SSSAAA"),
        (400, Words("request B, 112 tokens", "请求 B，112 个 token"), "SSSBBBB"),
    )
    for x, words, table in tables:
        sheet.label(x, 34, words, anchor="start", ink=INK, bold=True)
        for number, kind in enumerate(table):
            sheet.cell(x + number * _GAP, 46, _SIZE, _COLOURS[kind])
    for of_table, of_pool in ((69, 86), (153, 173), (439, 96), (537, 271)):
        sheet.arrow((of_table, 76), (of_pool, 128))
    left, top = 50, 134
    sheet.label(664, 122, Words("the pool", "块池"), anchor="end", ink=INK, bold=True)
    for number, kind in enumerate(_MAP):
        sheet.cell(left + number * _GAP, top, _SIZE, _COLOURS.get(kind, GREY), hatched=kind in "C.")
    held, reserved = left + 10 * _GAP - 3, left + 16 * _GAP - 3
    for x, ink in ((held, INK), (reserved, ROSE)):
        sheet.arrow((x, 124), (x, 178), ink=ink, dashed=ink == ROSE, head=False)
    sheet.label(held, 194, Words("held: 10", "已占用：10"), ink=INK)
    words = Words("reserved: 16, the predicted peak", "已预留：16，即预测的峰值")
    sheet.label(reserved, 194, words, ink=ROSE)
    legend = (
        (ROSE, False, Words("shared prefix", "共享前缀")),
        (TEAL, False, Words("held by A", "由 A 占用")),
        (BLUE, False, Words("held by B", "由 B 占用")),
        (AMBER, True, Words("free, with a cached prefix", "空闲，留有缓存的前缀")),
        (GREY, True, Words("free", "空闲")),
    )
    for (colour, hatched, words), x in zip(legend, (50, 172, 272, 372, 590), strict=True):
        sheet.cell(x, 226, 14, colour, hatched=hatched)
        sheet.label(x + 21, 238, words, anchor="start")
    total = Words(
        "22 blocks in all = 10 held + 12 free; 4 of the free ones are cached",
        "共 22 块 = 10 块已占用 + 12 块空闲；空闲块中有 4 块留有缓存",
    )
    sheet.label(50, 276, total, anchor="start", ink=INK)
    return sheet.text()


def admission(language: int) -> str:
    """Occupancy over time, and the ceiling."""
    title = Words("Predicted occupancy and the ceiling", "预测的占用量与上限")
    sheet = Canvas(720, 320, language, title)
    left, foot, right = 70, 250, 520
    ceiling = 90
    sheet.arrow((left, foot), (right, foot))
    sheet.arrow((left, foot), (left, 40))
    sheet.label(right, foot + 20, Words("time ahead", "未来时间"), anchor="end")
    sheet.label(left - 8, 34, Words("blocks", "块"), anchor="middle")
    now = [(left, 205), (150, 165), (230, 135), (300, 128), (380, 160), (450, 190), (505, 215)]
    more = [(left, 190), (150, 140), (230, 101), (300, 96), (380, 132), (450, 172), (505, 205)]
    much = [(left, 165), (150, 105), (230, 62), (300, 58), (380, 95), (450, 145), (505, 190)]
    sheet.area([(left, foot), *now, (505, foot)], TEAL)
    sheet.arrow(*now, ink=TEAL, head=False)
    sheet.arrow(*more, ink=BLUE, dashed=True, head=False)
    sheet.arrow(*much, ink=ROSE, dashed=True, head=False)
    sheet.arrow((left, ceiling), (right, ceiling), ink=INK, head=False)
    sheet.label(
        right + 8, ceiling + 4, Words("ceiling: 95 %", "上限：95%"), anchor="start", ink=INK
    )
    shown = (
        (
            176,
            TEAL,
            Words(
                "what runs: some end\nbefore others have grown",
                "正在运行的请求：有的\n先结束，有的还在增长",
            ),
        ),
        (
            128,
            BLUE,
            Words("with a request whose\npeak fits: let in", "加上峰值放得下的请求：\n准入"),
        ),
        (
            40,
            ROSE,
            Words(
                "with a request whose peak\ndoes not fit: waits, or 429",
                "加上峰值放不下的请求：\n等待，或返回 429",
            ),
        ),
    )
    for y, ink, words in shown:
        sheet.label(right + 8, y, words, anchor="start", ink=ink)
    steps = (
        Words("blocks?", "块够吗？"),
        Words("seats?", "席位够吗？"),
        Words("step time?", "步进耗时？"),
        Words("deadline?", "来得及吗？"),
        Words("reserve", "预留并开始"),
    )
    for number, words in enumerate(steps):
        x = 70 + number * 120
        sheet.box(x, 278, 100, 28, words, edge=TEAL if number == len(steps) - 1 else QUIET)
        if number:
            sheet.arrow((x - 20, 292), (x - 2, 292))
    return sheet.text()
