package millrace.capture;

import com.github.shyiko.mysql.binlog.BinaryLogClient;
import io.debezium.DebeziumException;
import io.debezium.bean.StandardBeanNames;
import io.debezium.config.CommonConnectorConfig;
import io.debezium.config.Configuration;
import io.debezium.config.Field;
import io.debezium.connector.base.ChangeEventQueue;
import io.debezium.connector.base.QueueProviderService;
import io.debezium.connector.binlog.BinlogEventMetadataProvider;
import io.debezium.connector.binlog.BinlogSourceTask;
import io.debezium.connector.binlog.jdbc.BinlogConnectorConnection;
import io.debezium.connector.common.CdcSourceTaskContext;
import io.debezium.connector.common.DebeziumHeaderProducer;
import io.debezium.connector.mariadb.MariaDbChangeEventSourceFactory;
import io.debezium.connector.mariadb.MariaDbConnector;
import io.debezium.connector.mariadb.MariaDbConnectorConfig;
import io.debezium.connector.mariadb.MariaDbDatabaseSchema;
import io.debezium.connector.mariadb.MariaDbErrorHandler;
import io.debezium.connector.mariadb.MariaDbOffsetContext;
import io.debezium.connector.mariadb.MariaDbPartition;
import io.debezium.connector.mariadb.MariaDbTaskContext;
import io.debezium.connector.mariadb.Module;
import io.debezium.connector.mariadb.jdbc.MariaDbConnection;
import io.debezium.connector.mariadb.jdbc.MariaDbConnectionConfiguration;
import io.debezium.connector.mariadb.jdbc.MariaDbFieldReader;
import io.debezium.connector.mariadb.jdbc.MariaDbValueConverters;
import io.debezium.connector.mariadb.metrics.MariaDbChangeEventSourceMetricsFactory;
import io.debezium.connector.mariadb.metrics.MariaDbStreamingChangeEventSourceMetrics;
import io.debezium.document.DocumentReader;
import io.debezium.heartbeat.HeartbeatFactory;
import io.debezium.jdbc.DefaultMainConnectionProvidingConnectionFactory;
import io.debezium.jdbc.MainConnectionProvidingConnectionFactory;
import io.debezium.pipeline.ChangeEventSourceCoordinator;
import io.debezium.pipeline.DataChangeEvent;
import io.debezium.pipeline.ErrorHandler;
import io.debezium.pipeline.EventDispatcher;
import io.debezium.pipeline.notification.NotificationService;
import io.debezium.pipeline.signal.SignalProcessor;
import io.debezium.pipeline.spi.Offsets;
import io.debezium.relational.Column;
import io.debezium.relational.CustomConverterRegistry;
import io.debezium.relational.Table;
import io.debezium.relational.TableId;
import io.debezium.schema.SchemaFactory;
import io.debezium.service.Service;
import io.debezium.snapshot.SnapshotterService;
import io.debezium.spi.topic.TopicNamingStrategy;
import io.debezium.util.Clock;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.LocalDateTime;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;

/**
 * Puts together what reads a MariaDB, from the parts of Debezium's MariaDB connector (whose own task does not run with
 * the release that the other parts are of), and hands over what they read in whole rows (see {@link Binlog}).
 */
public final class MariadbCaptureTask extends BinlogSourceTask<MariaDbPartition, MariaDbOffsetContext> {
    private MariaDbConnectorConfig connector;
    private MariaDbTaskContext task;
    private Binlog binlog;
    private MainConnectionProvidingConnectionFactory<BinlogConnectorConnection> connections;
    private BinlogConnectorConnection spare;
    private MariaDbDatabaseSchema schema;
    private ChangeEventQueue<DataChangeEvent> queue;
    private ErrorHandler errors;

    @Override
    public void initialize(SourceTaskContext given) {
        super.initialize(new BegunOffsets(given));
    }

    @Override
    public String version() {
        return Module.version();
    }

    @Override
    protected String connectorName() {
        return Module.name();
    }

    @Override
    protected Iterable<Field> getAllConfigurationFields() {
        return MariaDbConnectorConfig.ALL_FIELDS;
    }

    @Override
    public CdcSourceTaskContext<? extends CommonConnectorConfig> preStart(Configuration config) {
        connector = new MariaDbConnectorConfig(config);
        task = new MariaDbTaskContext(config, connector);
        return task;
    }

    /** Also called when Debezium starts itself again after a failure that may pass. */
    @Override
    protected ChangeEventSourceCoordinator<MariaDbPartition, MariaDbOffsetContext> start(Configuration given) {
        try {
            binlog = new Binlog(given);
            // Rows of a snapshot come by and by, not a whole table at once into memory.
            Configuration config = given.edit()
                    .withDefault("database.fetchSize", 10_000)
                    .withDefault("database.useCursorFetch", connector.useCursorFetch())
                    .build();
            connections = new DefaultMainConnectionProvidingConnectionFactory<>(() -> connection(config));
            Offsets<MariaDbPartition, MariaDbOffsetContext> offsets = checkedOffsets(config);
            return coordinated(config, offsets);
        } catch (SQLException error) {
            doStop();
            throw Binlog.passing(new DebeziumException(error));
        } catch (RuntimeException error) {
            doStop();
            throw Binlog.passing(error);
        }
    }

    /** Where to go on, once it is sure that the server still has what comes next; and the tables as they were there. */
    private Offsets<MariaDbPartition, MariaDbOffsetContext> checkedOffsets(Configuration config) throws SQLException {
        Offsets<MariaDbPartition, MariaDbOffsetContext> offsets = getPreviousOffsets(
                new MariaDbPartition.Provider(connector, config), new MariaDbOffsetContext.Loader(connector));
        registerServiceProviders(connector.getServiceRegistry());
        BinlogConnectorConnection main = connections.mainConnection();
        MariaDbValueConverters values = values();
        schema = new MariaDbDatabaseSchema(connector, values, topics(), connector.schemaNameAdjuster(),
                main.isTableIdCaseSensitive(), service(CustomConverterRegistry.class), task);
        spare = connections.newConnection();
        var beans = connector.getBeanRegistry();
        beans.add(StandardBeanNames.CONFIGURATION, config);
        beans.add(StandardBeanNames.CONNECTOR_CONFIG, connector);
        beans.add(StandardBeanNames.DATABASE_SCHEMA, schema);
        beans.add(StandardBeanNames.JDBC_CONNECTION, spare);
        beans.add(StandardBeanNames.VALUE_CONVERTER, values);
        beans.add(StandardBeanNames.OFFSETS, offsets);
        beans.add(StandardBeanNames.CDC_SOURCE_TASK_CONTEXT, task);
        var snapshotter = service(SnapshotterService.class).getSnapshotter();
        validateBinlogConfiguration(snapshotter, main);
        // Recovering a long history of tables may take longer than a server keeps an idle connection.
        main.close();
        validateSchemaHistory(connector, main::validateLogPosition, offsets, schema, snapshotter);
        main.setAutoCommit(false);
        return offsets;
    }

    private ChangeEventSourceCoordinator<MariaDbPartition, MariaDbOffsetContext> coordinated(
            Configuration config, Offsets<MariaDbPartition, MariaDbOffsetContext> offsets) {
        queue = new ChangeEventQueue.Builder<DataChangeEvent>()
                .pollInterval(connector.getPollInterval())
                .maxBatchSize(connector.getMaxBatchSize())
                .maxQueueSize(connector.getMaxQueueSize())
                .maxQueueSizeInBytes(connector.getMaxQueueSizeInBytes())
                .queueProvider(service(QueueProviderService.class).getQueueProvider())
                .loggingContextSupplier(() -> task.configureLoggingContext("mariadb-connector-task"))
                .buffering()
                .build();
        errors = new MariaDbErrorHandler(connector, queue, errors);
        var metadata = new BinlogEventMetadataProvider();
        var signals = new SignalProcessor<MariaDbPartition, MariaDbOffsetContext>(MariaDbConnector.class, connector,
                Map.of(), getAvailableSignalChannels(), DocumentReader.defaultReader(), offsets);
        var dispatcher = dispatcher(config, metadata, signals);
        var client = new BinaryLogClient(
                connector.getHostName(), connector.getPort(), connector.getUserName(), connector.getPassword());
        var metrics = new MariaDbStreamingChangeEventSourceMetrics(
                task, queue, metadata, schema::dataCollectionIds, client);
        var notifications = new NotificationService<MariaDbPartition, MariaDbOffsetContext>(
                getNotificationChannels(), connector, SchemaFactory.get(), dispatcher::enqueueNotification);
        var snapshots = service(SnapshotterService.class);
        var sources = new MariaDbChangeEventSourceFactory(connector, connections, errors, dispatcher, Clock.system(),
                schema, task, metrics, queue, snapshots, client);
        var coordinator = new ChangeEventSourceCoordinator<>(offsets, errors, MariaDbConnector.class, connector,
                sources, new MariaDbChangeEventSourceMetricsFactory(metrics), dispatcher, schema, signals,
                notifications, snapshots);
        coordinator.start(task, queue, metadata);
        return coordinator;
    }

    private EventDispatcher<MariaDbPartition, TableId> dispatcher(
            Configuration config,
            BinlogEventMetadataProvider metadata,
            SignalProcessor<MariaDbPartition, MariaDbOffsetContext> signals) {
        var heartbeat = new HeartbeatFactory<>().getScheduledHeartbeat(
                connector, () -> connection(config), new BinlogHeartbeatErrorHandler(), queue);
        return new EventDispatcher<>(connector, topics(), schema, queue,
                connector.getTableFilters().dataCollectionFilter(), DataChangeEvent::new, null, metadata, heartbeat,
                connector.schemaNameAdjuster(), signals, service(DebeziumHeaderProducer.class));
    }

    @Override
    protected List<SourceRecord> doPoll() throws InterruptedException {
        try {
            binlog.watch(coordinator);
            return binlog.whole(() -> pollRecords(queue));
        } catch (ConnectException error) {
            throw Binlog.passing(error);
        }
    }

    @Override
    protected Optional<ErrorHandler> getErrorHandler() {
        return Optional.ofNullable(errors);
    }

    @Override
    protected void doStop() {
        try {
            if (connections != null) {
                connections.mainConnection().close();
            }
            if (spare != null) {
                spare.close();
            }
        } catch (SQLException error) {
            // The server closes what is left of a connection when this process has gone.
        }
        if (schema != null) {
            schema.close();
        }
        if (queue != null) {
            queue.close();
        }
    }

    private MariaDbConnection connection(Configuration config) {
        return new MariaDbConnection(new MariaDbConnectionConfiguration(config), new MariaDbFieldReader(connector) {
            /** As written: by way of java.sql.Timestamp it would be bent to the worker's time zone and calendar. */
            @Override
            protected Object readTimestampField(ResultSet row, int place, Column column, Table table)
                    throws SQLException {
                String text = row.getString(place);
                return text == null || MariaDbValueConverters.containsZeroValuesInDatePart(text, column, table)
                        ? null
                        : LocalDateTime.parse(text.replace(' ', 'T'));
            }
        });
    }

    private MariaDbValueConverters values() {
        return new MariaDbValueConverters(connector.getDecimalMode(), connector.getTemporalPrecisionMode(),
                connector.getBigIntUnsignedHandlingMode().asBigIntUnsignedMode(), connector.binaryHandlingMode(),
                connector.isTimeAdjustedEnabled() ? MariaDbValueConverters::adjustTemporal : time -> time,
                connector.getEventConvertingFailureHandlingMode(), connector.getServiceRegistry());
    }

    private TopicNamingStrategy<TableId> topics() {
        return connector.getTopicNamingStrategy(MariaDbConnectorConfig.TOPIC_NAMING_STRATEGY);
    }

    private <T extends Service> T service(Class<T> type) {
        return connector.getServiceRegistry().tryGetService(type);
    }
}
