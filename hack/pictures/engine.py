"""Pictures of one engine: the order of sums, and its end."""

from hack.pictures.canvas import AMBER, BLUE, GREY, INK, ROSE, TEAL, Canvas, Words


def batch_invariance(language: int) -> str:
    """One row alone and among others."""
    title = Words("Sums in one order, and in several", "固定顺序与变化顺序的求和")
    sheet = Canvas(720, 270, language, title)
    for top, words, splits, ink, result in (
        (40, Words("usual kernels", "一般的核函数"), (1, 4), ROSE, ("0.50000", "0.50012")),
        (150, Words("batch-invariant", "批次不变"), (2, 2), TEAL, ("0.50008", "0.50008")),
    ):
        sheet.label(24, top - 8, words, anchor="start", ink=ink, bold=True)
        for place, rows, pieces, value in (
            (24, 1, splits[0], result[0]),
            (374, 4, splits[1], result[1]),
        ):
            for row in range(rows):
                for column in range(8):
                    fill = ink if row == 0 else GREY
                    sheet.cell(place + column * 18, top + 6 + row * 18, 13, fill)
            for piece in range(1, pieces):
                x = place + piece * 144 / pieces - 3
                sheet.arrow((x, top), (x, top + 8 + rows * 18), ink=INK, head=False)
            sheet.arrow((place + 152, top + 14), (place + 182, top + 14), ink=ink)
            sheet.label(
                place + 190, top + 18, Words(value, value), anchor="start", ink=INK, bold=True
            )
    alone = Words("alone", "单独计算")
    among = Words("among others", "与其他请求一起")
    sheet.label(24, 250, alone, anchor="start")
    sheet.label(374, 250, among, anchor="start")
    lines = Words("lines: where partial sums are cut", "竖线：部分和的切分处")
    sheet.label(696, 250, lines, anchor="end", ink=BLUE)
    return sheet.text()


def drain(language: int) -> str:
    """The end of a replica over time."""
    title = Words("How a replica ends", "副本如何退出")
    sheet = Canvas(720, 250, language, title)
    left, right = 130, 690
    marks = (
        (170, Words("SIGTERM", "SIGTERM")),
        (260, Words("+ 2 s", "+ 2 s")),
        (640, Words("+ drainSeconds", "+ drainSeconds")),
    )
    for x, words in marks:
        sheet.arrow((x, 50), (x, 205), ink=GREY, head=False)
        sheet.label(x, 40, words, ink=INK)
    sheet.arrow((left, 215), (right, 215))
    rows = (
        (Words("takes requests", "接收请求"), 130, 260, TEAL, Words("yes", "是")),
        (Words("is ready", "就绪"), 130, 170, BLUE, Words("", "")),
        (
            Words("ends answers", "答完请求"),
            170,
            590,
            AMBER,
            Words("until none is left", "直到全部答完"),
        ),
    )
    for number, (words, begin, end, ink, inside) in enumerate(rows):
        y = 60 + number * 46
        sheet.label(left - 10, y + 19, words, anchor="end", ink=INK)
        sheet.box(begin, y, end - begin, 30, inside, edge=ink)
    sheet.label(600, 170, Words("exits", "退出"), anchor="start", ink=AMBER, bold=True)
    words = Words(
        "what is not done by then ends with an error event", "届时仍未答完的，以错误事件结束"
    )
    sheet.label(690, 237, words, anchor="end", ink=ROSE)
    return sheet.text()
