"""What the gateway is told: which services there are, where their engines are, and who may ask.

document      one service, as the operator writes it
file_source   documents from a file, read again when it changes
access        API keys and their limits
"""
