"""What the demo's user says and what its tools answer: a trip from Hamburg to Lisbon; it knows nothing of the proxy.

The offline model understands plain requests only (its rules stand in `transom.proxy.upstream.demo`), so the sentences
are made of those.
"""

import json
from collections.abc import Callable
from typing import Any

from openai.types.chat import ChatCompletionFunctionToolParam

SYSTEM = "You are the travel desk of a small company. Be brief, use the tools, and keep what the traveller tells you."
FACT = "QX7-4481"
QUESTION = "One thing at last: what is my booking code?"

TURNS = (
    f"Hello! My booking code is {FACT} and my name is Ada Lindgren. I travel from Hamburg to Lisbon on 14 March.",
    "My budget is 1,400 euros for the whole trip, and our office is in Hamburg. I want to be back on 19 March.",
    "From now on, never book a red-eye flight for me, since I work the morning after. I prefer window seats.",
    "What is the weather in Lisbon?",
    "Search flights to Lisbon.",
    "The one at 10:20 suits me well. We decided on TP571, because it leaves after the children are at school.",
    "How is the weather in Lisbon, Porto and Sintra?",
    "Find hotels in Alfama, then check the exchange rate for Dollars.",
    "I will take the Memmo. It is within the limit that accounting agreed to, 160 a night, and close to the customer.",
    "My dietary requirement is no shellfish. Please remember it for the restaurants.",
    "Find restaurants in Alfama, Baixa and Chiado.",
    "My dinner guest is Professor Duarte. She arrives from Coimbra by train and will be at the Memmo at seven.",
    "Write 90 words to Professor Duarte about the dinner.",
    "Search trains to Coimbra; then what is the weather in Coimbra; then find hotels in Coimbra.",
    "So Coimbra stays a day trip. I promised the customer there to come on 17 March, in the morning.",
    "Check seat 10A; check seat 11A; check seat 12A; check seat 14A; check seat 15A; check seat 16A; check seat 17A.",
    "Then 14A it is, on the way there. For the way back any window seat will do.",
    "My meeting room is Sala Tejo on the second floor. The projector there needs an adapter, which I will bring.",
    "Find museums in Belém, Chiado and Alfama.",
    "Search concerts in Lisbon, Porto and Sintra.",
    "The tile museum sounds best, and a concert after it. I plan to go on Saturday afternoon.",
    "Check the exchange rate for Dollars and Pounds, then search trains to Sintra.",
    "My expense account is 77-3120. The invoices of the hotel must go there and not to my own card.",
    "Write 120 words for the expense report about the flight and the hotel.",
    "Search flights to Hamburg.",
    "TP566 at noon on 19 March, please. In the evening would be too late for me, since I start at eight the day after.",
    "What is the weather in Hamburg?",
    "My emergency contact is Jonas, at 040 555 0199. He has the keys and looks after the cat.",
    "Find restaurants in Baixa, then check the exchange rate for Pounds.",
    "I want a quiet table near the window on 15 March, four people, and nobody should have to hurry.",
    "Write 100 words to Jonas about the cat and the plants.",
    "How is the weather in Lisbon and Coimbra?",
    "Then I will pack a light coat and the good shoes. Thank you, this has been quick work.",
    "What is my dietary requirement?",
    QUESTION,
)
STREAMED = frozenset({2, 7, 13, 14, 16, 24, 31, 35})
"""Numbers of the turns whose answers the client streams."""

Tool = Callable[[str], object]

WEATHER = {
    "Lisbon": (19, "sunny, a breeze from the west in the afternoon"),
    "Porto": (15, "showers, clearing towards the evening"),
    "Sintra": (16, "fog in the hills until noon"),
    "Coimbra": (17, "mostly sunny, cool in the shade"),
    "Hamburg": (7, "drizzle, wind from the north-west"),
}


def _weather(city: str) -> object:
    degrees, sky = WEATHER.get(city, (14, "no station there; this is the nearest one"))
    return {"city": city, "celsius": degrees, "sky": sky, "source": "weather station, hourly reading"}


def _flights(destination: str) -> object:
    rows = (("TP571", "10:20", 189), ("LH1166", "06:05", 174), ("EW7602", "21:50", 121))
    if destination == "Hamburg":
        rows = (("TP566", "12:05", 203), ("LH1167", "18:40", 168), ("EW7603", "22:55", 109))
    return [
        {"flight": flight, "to": destination, "leaves": leaves, "price_eur": price, "baggage": "one piece, 23 kg"}
        for flight, leaves, price in rows
    ]


def _trains(destination: str) -> object:
    return [
        {"train": f"IC {number}", "to": destination, "leaves": leaves, "from": "Lisboa Oriente", "price_eur": price}
        for number, leaves, price in ((521, "08:39", 19.5), (523, "09:39", 21.0), (525, "11:39", 19.5))
    ]


def _hotels(place: str) -> object:
    return [
        {"hotel": f"{name} {place}", "night_eur": price, "breakfast": breakfast, "cancel_until": "two days before"}
        for name, price, breakfast in (("Memmo", 158, True), ("Solar do", 132, False), ("Pousada de", 171, True))
    ]


def _restaurants(place: str) -> object:
    return [
        {"restaurant": f"{name} {place}", "kitchen": kitchen, "open": "19:00-23:00", "for_two_eur": price}
        for name, kitchen, price in (
            ("Taberna", "Portuguese", 48),
            ("Horta", "vegetarian", 39),
            ("Grelha", "grill", 56),
        )
    ]


def _museums(place: str) -> object:
    return [
        {"museum": f"{name} of {place}", "open": "10:00-18:00", "closed": "Monday", "ticket_eur": price}
        for name, price in (("Tile museum", 8), ("Museum of coaches", 10), ("Museum of the river", 5))
    ]


def _concerts(place: str) -> object:
    evenings = (
        ("Fado at the old theatre", "two singers, guitar and viola; the bar opens an hour before", 24),
        ("String quartets by candlelight", "Schubert and Freitas Branco, without an interval", 31),
        ("The city's big band", "swing and bossa nova, with dancing after the first set", 18),
        ("Organ at noon", "half an hour of Carlos Seixas, given twice if there are many visitors", 5),
        ("Songs of the river", "a choir of eighty, on the quay; in bad weather in the market hall", 12),
        ("New music, short pieces", "six first performances, and a talk with those who wrote them", 9),
    )
    return [
        {"concert": f"{name}, {place}", "tells": tells, "starts": "20:30", "ticket_eur": price, "seats": "not numbered"}
        for name, tells, price in evenings
    ]


def _seat(number: str) -> object:
    return {"seat": number, "status": "free" if number == "14A" else "taken", "kind": "window", "extra_eur": 0}


def _rate(currency: str) -> object:
    return {"currency": currency, "per_euro": {"Dollars": 1.09, "Pounds": 0.85}.get(currency, 1.0), "bank": "ECB"}


TOOLS: dict[str, tuple[str, str, Tool]] = {
    "get_weather": ("The weather now.", "city", _weather),
    "search_flights": ("Flights on the days of the trip.", "destination", _flights),
    "search_trains": ("Trains from Lisbon.", "destination", _trains),
    "find_hotels": ("Hotels with free rooms.", "place", _hotels),
    "find_restaurants": ("Restaurants with free tables.", "place", _restaurants),
    "find_museums": ("Museums and their hours.", "place", _museums),
    "search_concerts": ("Concerts in the days of the trip.", "place", _concerts),
    "check_seat": ("Whether a seat is free on the booked flight.", "number", _seat),
    "check_exchange_rate": ("What one euro buys.", "currency", _rate),
}
"""Per name: what it tells, its one parameter, and what is run for it on this machine."""


def offered() -> list[ChatCompletionFunctionToolParam]:
    """Return the tools as a request offers them."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": tells,
                "parameters": {
                    "type": "object",
                    "properties": {parameter: {"type": "string"}},
                    "required": [parameter],
                },
            },
        }
        for name, (tells, parameter, _) in TOOLS.items()
    ]


def run_tool(name: str, arguments: str) -> str:
    """Run a tool; return its result as JSON."""
    _, parameter, tool = TOOLS[name]
    given: dict[str, Any] = json.loads(arguments)
    return json.dumps(tool(str(given[parameter])), ensure_ascii=False)
