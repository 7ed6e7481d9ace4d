"""Nexmark, the auction house: the model's events in Kafka, twenty-two of its queries as flows, and what they cost
beside Flink SQL and beside PySpark by hand.

events      the model: persons, auctions and bids, 1 : 3 : 46, made by Spark and written once
flows       the queries in Millrace
by_hand     some of them as one would write them on Spark without Millrace
batch       what each must give, as a batch over the same topics, and the comparison
flink       the same in Flink SQL
__main__    the run
"""
