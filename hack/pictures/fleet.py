"""Pictures of many engines: the whole, the way of a request, the mix of GPUs."""

from hack.pictures.canvas import AMBER, BLUE, INK, QUIET, ROSE, TEAL, Canvas, Words


def overview(language: int) -> str:
    """Who speaks with whom."""
    title = Words("quire at a glance", "quire 概览")
    sheet = Canvas(720, 300, language, title)
    sheet.box(20, 110, 110, 60, Words("client\nOpenAI's API", "客户端\nOpenAI API"))
    sheet.box(190, 30, 510, 250, edge=QUIET, dashed=True, fill="none")
    sheet.label(
        204, 50, Words("Kubernetes, or quire up", "Kubernetes，或 quire up"), anchor="start"
    )
    sheet.box(215, 110, 130, 60, Words("gateway\nadmits, routes", "网关\n准入与路由"), edge=TEAL)
    sheet.box(
        215, 210, 130, 50, Words("operator\nsizes the fleet", "Operator\n决定规模"), edge=AMBER
    )
    for number, (name, words) in enumerate(
        (
            ("L4", Words("engine on an L4\ncounts blocks", "L4 上的引擎\n精确计数块")),
            ("L4", Words("engine on an L4\ncounts blocks", "L4 上的引擎\n精确计数块")),
            ("H100", Words("engine on an H100\ncounts blocks", "H100 上的引擎\n精确计数块")),
        )
    ):
        y = 62 + number * 70
        sheet.box(520, y, 160, 54, words, edge=BLUE if name == "L4" else ROSE)
        sheet.arrow((345, 140), (518, y + 20), ink=TEAL)
        sheet.arrow((345, 235), (518, y + 40), ink=AMBER, dashed=True)
    sheet.arrow((130, 140), (213, 140))
    sheet.label(415, 104, Words("requests", "请求"), ink=TEAL)
    sheet.label(420, 262, Words("starts, drains", "启动、排空"), ink=AMBER)
    sheet.label(274, 194, Words("demand", "需求"), anchor="start", ink=AMBER)
    sheet.arrow((265, 170), (265, 208), ink=AMBER, dashed=True)
    return sheet.text()


def routing(language: int) -> str:
    """From a request to an engine."""
    title = Words("How the gateway chooses an engine", "网关如何选择引擎")
    sheet = Canvas(720, 290, language, title)
    steps = (
        Words("which service?\nmodel, host, key", "哪个服务？\n模型、主机名、密钥"),
        Words("who has room?\npredicted blocks", "谁有空间？\n按预测的块数"),
        Words("who is done first?\nseconds, prefixes", "谁最先完成？\n秒数与前缀缓存"),
    )
    sheet.arrow((6, 70), (28, 70))
    for number, words in enumerate(steps):
        x = 30 + number * 170
        sheet.box(x, 40, 145, 60, words, edge=TEAL)
        sheet.arrow((x + 145, 70), (x + 168, 70))
    sheet.box(
        540,
        40,
        150,
        60,
        Words("engine\nreserves, or says 429", "引擎\n预留，或返回 429"),
        edge=BLUE,
    )
    sheet.box(200, 160, 145, 54, Words("queue\nfair by cost", "队列\n按开销公平"), edge=AMBER)
    sheet.arrow((272, 100), (272, 158), ink=AMBER)
    sheet.label(282, 134, Words("nobody", "没有"), anchor="start", ink=AMBER)
    sheet.box(30, 160, 145, 54, Words("429, Retry-After", "429，Retry-After"), edge=ROSE)
    sheet.arrow((200, 187), (177, 187), ink=ROSE)
    sheet.label(188, 236, Words("too late", "来不及"), ink=ROSE)
    sheet.arrow((345, 187), (442, 187), (442, 102), ink=TEAL)
    sheet.label(452, 150, Words("room again", "又有空间"), anchor="start", ink=TEAL)
    sheet.arrow((640, 100), (640, 250), (415, 250), (415, 102), ink=ROSE, dashed=True)
    words = Words(
        "refused, or failed before the first byte: the next one", "被拒或在首字节前失败：换下一个"
    )
    sheet.label(700, 272, words, anchor="end", ink=ROSE)
    return sheet.text()


def scaling(language: int) -> str:
    """From traffic to replicas."""
    title = Words("How the fleet is sized", "如何决定机群规模")
    sheet = Canvas(720, 300, language, title)
    sheet.box(
        24, 30, 160, 62, Words("demand\nrequests by lengths", "需求\n按长度统计的请求"), edge=TEAL
    )
    words = Words("capacity\nof each GPU type\nat the target", "容量\n各型 GPU 在\n目标压力下")
    sheet.box(24, 112, 160, 72, words, edge=BLUE)
    words = Words("prices, bounds,\nGPUs there are", "价格、边界、\n现有 GPU")
    sheet.box(24, 204, 160, 62, words, edge=AMBER)
    sheet.box(
        256,
        112,
        140,
        72,
        Words("cheapest mix\ninteger program", "最便宜的组合\n整数规划"),
        edge=INK,
    )
    for y in (61, 148, 235):
        sheet.arrow((184, y), (254, 148))
    sheet.arrow((396, 148), (444, 148))
    left, foot = 456, 240
    sheet.arrow((left, foot), (700, foot))
    sheet.label(700, foot + 20, Words("time", "时间"), anchor="end")
    for column, (small, big) in enumerate(((1, 0), (2, 0), (2, 1), (2, 1), (1, 0))):
        x = left + column * 48 + 4
        for number in range(small):
            sheet.box(x, foot - 30 - number * 32, 40, 26, Words("L4", "L4"), edge=BLUE)
        if big:
            sheet.box(x - 3, foot - 42 - small * 32, 46, 38, Words("H100", "H100"), edge=ROSE)
    words = Words(
        "up: at once\ndown: when the others would\nhave carried the last 5 minutes",
        "扩容：立即\n缩容：其余副本本来就能\n承载过去 5 分钟时",
    )
    sheet.label(left + 120, 60, words)
    return sheet.text()
