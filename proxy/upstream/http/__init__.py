"""HTTP/1.1 towards the models: one request at a time over kept connections; it knows neither chat nor models.

    message -> decoding -> reply -> connection -> names -> pool

Names, addresses and TLS are the libraries' (yarl, aiohappyeyeballs, ssl), and so is the parser (httptools); what stands
between them is written for one thing, relaying bodies as they come.
"""
